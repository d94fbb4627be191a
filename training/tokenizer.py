"""Train a byte-level BPE tokenizer on a corpus and save it in Hugging Face layout."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from training.corpus import CorpusError, read_rows, row_text

SPECIAL_TOKENS = (
    "<|pad|>",
    "<|bos|>",
    "<|end|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|reserved_0|>",
    "<|reserved_1|>",
)
# Words with their leading space, single digits, punctuation with its newlines, runs of newlines
# and of spaces: indentation and identifiers of code stay whole, numbers never merge.
PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTEXT = 2048
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def balanced_texts(path: Path, chars_per_domain: int, seed: int) -> Iterator[str]:
    """Yield texts of a corpus file, up to the same number of characters per domain."""
    domains: dict[str, list[str]] = defaultdict(list)
    for row in read_rows(path):
        domains[row["domain"]].append(row_text(row))
    for domain in sorted(domains):
        texts = domains[domain]
        random.Random(f"{seed}/{domain}").shuffle(texts)
        taken = 0
        for text in texts:
            if taken >= chars_per_domain:
                break
            taken += len(text)
            yield text


def train_tokenizer(
    corpus_dir: Path,
    out_dir: Path,
    vocab_size: int = 4096,
    seed: int = 0,
    chars_per_domain: int = 2_500_000,
) -> int:
    """Train a tokenizer on `corpus_dir`/train.jsonl and return the size of its vocabulary.

    Write tokenizer.json and tokenizer_config.json to `out_dir`. Special tokens have ids 0 to 7 and
    are counted. Raises CorpusError for a corpus that is missing or too small for `vocab_size`.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = balanced_texts(corpus_dir / "train.jsonl", chars_per_domain, seed)
    tokenizer.train_from_iterator(texts, trainer)
    size = tokenizer.get_vocab_size()
    if size != vocab_size:
        raise CorpusError(
            f"the corpus yields {size} tokens, not vocab_size={vocab_size}: use more rows or a "
            "smaller vocab_size"
        )
    out_dir.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out_dir / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": "<|end|>",
        "pad_token": "<|pad|>",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (out_dir / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    return size
