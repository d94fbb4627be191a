"""Random heads in the layouts that vLLM loads, for targets that are random themselves."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaConfig

SCALE = 0.14
HEADS = 3
Tensors = dict[str, Tensor]


def save_heads(folder: Path, target: LlamaConfig) -> dict[str, str]:
    """Medusa, EAGLE and EAGLE-3 under `folder`; returns the parts for bundle.json."""
    save_medusa(folder / "medusa", target)
    save_eagle(folder / "eagle", target)
    save_eagle3(folder / "eagle3", target)
    return {name: name for name in ("medusa", "eagle", "eagle3")}


def save_medusa(folder: Path, target: LlamaConfig, *, shared: bool = True) -> None:
    """Three heads: one LM head for all over half of the vocabulary, or one each over all and two
    layers below it."""
    hidden, vocab = target.hidden_size, target.vocab_size
    known = _known(vocab) if shared else torch.arange(vocab)
    layers = 1 if shared else 2
    blocks = [f"blocks.{head}.layers.{i}" for head in range(HEADS) for i in range(layers)]
    tensors = {f"{block}.weight": _random(hidden, hidden) for block in blocks}
    if shared:
        tensors |= {"lm_head.weight": _random(len(known), hidden), "token_map": known}
    else:
        tensors |= {f"lm_heads.{head}.weight": _random(vocab, hidden) for head in range(HEADS)}
        tensors |= {f"{block}.bias": _random(hidden) for block in blocks}
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": hidden,
        "vocab_size": vocab,
        "truncated_vocab_size": len(known),
        "num_heads": HEADS,
        "num_hidden_layers": layers,
        "medusa_fc_bias": not shared,
        "original_lm_head": shared,
    }
    _save(folder, config, tensors)


def save_eagle(folder: Path, target: LlamaConfig, *, own: bool = False) -> None:
    """A block and its fc; own: with a bias, an embedding and an LM head."""
    hidden, vocab = target.hidden_size, target.vocab_size
    tensors = {"fc.weight": _random(hidden, 2 * hidden)} | _block("layers.0.", target, hidden)
    if own:
        tensors |= {
            "fc.bias": _random(hidden),
            "embed_tokens.weight": _random(vocab, hidden),
            "lm_head.weight": _random(vocab, hidden),
        }
    _save(folder, _llama_config(target, "EagleLlamaForCausalLM"), tensors)


def save_eagle3(folder: Path, target: LlamaConfig, *, reduced: bool = True, **config: Any) -> None:
    """A block, its fc of three states and an LM head, over half of the vocabulary where
    `reduced`."""
    hidden, vocab = target.hidden_size, target.vocab_size
    known = _known(vocab) if reduced else torch.arange(vocab)
    tensors = {
        "fc.weight": _random(hidden, 3 * hidden),
        "norm.weight": 1 + _random(hidden),
        "lm_head.weight": _random(len(known), hidden),
        "midlayer.input_layernorm.weight": 1 + _random(hidden),
        "midlayer.hidden_norm.weight": 1 + _random(hidden),
    }
    tensors |= _block("midlayer.", target, 2 * hidden)
    if config.get("norm_before_fc"):
        tensors["input_norm.weight"] = 1 + _random(3 * hidden)
    if config.get("fc_norm"):
        tensors |= {f"fc_norm.{i}.weight": 1 + _random(hidden) for i in range(3)}
    if reduced:
        tensors["d2t"] = known - torch.arange(len(known))
    settings = {"draft_vocab_size": len(known)} | config
    _save(folder, _llama_config(target, "LlamaForCausalLMEagle3") | settings, tensors)


def _known(vocab: int) -> Tensor:
    """Every second token, ascending."""
    return torch.arange(0, vocab, 2)


def _block(prefix: str, target: LlamaConfig, width: int) -> Tensors:
    hidden, ffn, dim = target.hidden_size, target.intermediate_size, target.head_dim
    queries, keys = target.num_attention_heads * dim, target.num_key_value_heads * dim
    shapes = {
        "self_attn.q_proj": (queries, width),
        "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }
    tensors = {f"{prefix}{name}.weight": _random(*shape) for name, shape in shapes.items()}
    return tensors | {f"{prefix}post_attention_layernorm.weight": 1 + _random(hidden)}


def _llama_config(target: LlamaConfig, architecture: str) -> dict[str, Any]:
    config: dict[str, Any] = target.to_dict()
    return config | {"architectures": [architecture], "num_hidden_layers": 1}


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape) * SCALE


def _save(folder: Path, config: dict[str, Any], tensors: Tensors) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
