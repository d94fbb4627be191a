"""A bundle with tiny random models, made on the spot: the real loop without trained weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from random_heads import save_heads
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from workers.bundle import Bundle, load_bundle

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
DEMO = Path(__file__).parent.parent / "bundles" / "demo"


def byte_tokenizer(*merges: tuple[str, str]) -> PreTrainedTokenizerFast:
    """One token per byte and merge, and the demo family's special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    symbols = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    vocab = {symbol: index for index, symbol in enumerate(symbols)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=list(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    roles = ["<|system|>", "<|user|>", "<|assistant|>"]
    backend.add_special_tokens(["<|bos|>", "<|end|>", "<|pad|>", *roles])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|bos|>",
        eos_token="<|end|>",
        pad_token="<|pad|>",
        chat_template=CHAT_TEMPLATE,
    )


def fallback_tokenizer() -> PreTrainedTokenizerFast:
    """Llama-2's kind: a few pieces, and a token for each byte of what is not among them."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += ["▁", *"abdemnorsxy", "▁a", "▁an", "▁m", "or"]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    merges = [("▁", "a"), ("▁a", "n"), ("▁", "m"), ("o", "r")]
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<s>", "</s>", "<pad>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        chat_template=CHAT_TEMPLATE,
    )


def demo_tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(DEMO / "tokenizer", local_files_only=True)


def random_llama(
    *, vocab: int, eos: int | None, kv_heads: int = 1, hidden: int = 64, layers: int = 3
) -> LlamaForCausalLM:
    """A random target with heads of 16; its weights are large enough for clear preferences."""
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 16,
        num_key_value_heads=kv_heads,
        head_dim=16,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.14,
        eos_token_id=eos,
        bos_token_id=None,
        pad_token_id=None,
    )
    return LlamaForCausalLM(config)


def blurred(model: LlamaForCausalLM, noise: float) -> LlamaForCausalLM:
    """A copy with noise on its weights: a draft that agrees with its target now and then."""
    draft = LlamaForCausalLM(model.config)
    draft.load_state_dict(model.state_dict())
    with torch.no_grad():
        for weight in draft.parameters():
            weight.add_(torch.randn_like(weight) * noise * weight.std())
    return draft


def make_bundle(
    folder: Path,
    *,
    tokenizer: Any = None,
    vocab: int | None = None,
    kv_heads: int = 1,
    noise: float = 0.1,
    seed: int = 0,
) -> Bundle:
    """A complete tiny bundle in `folder`: a target of 3 layers x 64, its blurred draft and random
    heads."""
    tokenizer = demo_tokenizer() if tokenizer is None else tokenizer
    size, eos = vocab or len(tokenizer), tokenizer.eos_token_id
    torch.manual_seed(seed)
    target = random_llama(vocab=size, eos=eos if eos < size else None, kv_heads=kv_heads)
    tokenizer.save_pretrained(folder / "tokenizer")
    target.save_pretrained(folder / "target")
    blurred(target, noise).save_pretrained(folder / "draft")
    parts = {name: name for name in ("tokenizer", "target", "draft")}
    parts |= save_heads(folder, target.config)
    (folder / "bundle.json").write_text(json.dumps({"name": "tiny", "parts": parts}))
    return load_bundle(folder)


def with_parts(folder: Path, *without: str, **more: str) -> Bundle:
    """Load a bundle after its folder lost some parts and has got others."""
    file = folder / "bundle.json"
    body = json.loads(file.read_text())
    body["parts"] = {part: body["parts"][part] for part in body["parts"] if part not in without}
    file.write_text(json.dumps({**body, "parts": body["parts"] | more}))
    return load_bundle(folder)


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The demo's tokenizer, with random weights of a few thousand parameters."""
    return make_bundle(tmp_path_factory.mktemp("bundle") / "tiny")
