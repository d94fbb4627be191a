"""What the training commands share: devices, budgets, splits and prompts."""

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from ops.boundary import InputError

if TYPE_CHECKING:
    from workers.training.corpus import Row
    from workers.training.model import Geometry
    from workers.training.tokens import TokenRows
    from workers.training.trainer import Budget


COMMANDS = [
    "specadapt train tokenizer",
    "specadapt train target",
    "specadapt train draft",
    "specadapt train measure-draft --json runs/draft-before.json",
    "specadapt train generate",
    "specadapt train draft --generations runs/generations.jsonl --start bundles/demo/draft \\",
    "  --work runs/draft-distilled",
    "specadapt train prompts",
    "specadapt train card --before runs/draft-before.json --readme bundles/demo/README.md \\",
    "  --json bundles/demo/card.json",
]
"""How the demo family is made, from a checkout with ../shared beside it."""


def default_threads() -> int:
    """Every core this process may use."""
    return len(os.sched_getaffinity(0))


def training_device(name: str, threads: int | None) -> str:
    """The torch device for "auto", "cpu" or "cuda"; sets the number of CPU threads."""
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"--device: {name!r} is not one of auto, cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("--device: cuda is not available here; use cpu or auto")
    torch.set_num_threads(threads or default_threads())
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


def geometry(
    hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, bundle: Path
) -> "Geometry":
    """A Llama with the vocabulary of the bundle's tokenizer."""
    from transformers import AutoTokenizer

    from workers.training.model import Geometry

    if hidden % heads or heads % kv_heads:
        raise InputError("--hidden must be a multiple of --heads, and --heads of --kv-heads")
    folder = bundle / "tokenizer"
    if not folder.is_dir():
        raise InputError(f"{folder}: no tokenizer; run `specadapt train tokenizer` first")
    vocab = len(AutoTokenizer.from_pretrained(folder, local_files_only=True))
    return Geometry(hidden, layers, heads, kv_heads, ffn, vocab)


def tokens_seen(log: Path) -> int:
    """Tokens of a training run by its log; raises InputError where there is none."""
    if not log.is_file():
        raise InputError(f"{log}: no training log; name it with --target-log")
    return int(json.loads(log.read_text(encoding="utf-8").splitlines()[-1])["tokens"])


def budget(tokens: int, minutes: float | None) -> "Budget":
    from workers.training.trainer import Budget

    return Budget(tokens=tokens, minutes=minutes if minutes is not None else float("inf"))


def read_split(corpus: Path, split: str) -> "TokenRows":
    """Token rows of "train" or "held"; raises InputError where the corpus is not built."""
    from workers.training.tokens import TokenRows

    file = corpus / f"{split}.npz"
    if not file.is_file():
        raise InputError(f"{file}: not there; run `specadapt train tokenizer` first")
    return TokenRows.load(file)


def pick_rows(file: Path, count: int, seed: int) -> list["Row"]:
    """`count` rows of a corpus file, equal per domain, in a seeded order."""
    import random

    from workers.training.corpus import read_rows

    by_domain: dict[str, list[Row]] = defaultdict(list)
    for row in read_rows(file):
        by_domain[row["domain"]].append(row)
    share = count // len(by_domain)
    chosen = []
    for domain in sorted(by_domain):
        rows = by_domain[domain]
        random.Random(f"{seed} {domain}").shuffle(rows)
        chosen += rows[:share]
    random.Random(seed).shuffle(chosen)
    return chosen
