"""A language that a tiny model learns in seconds: counting in steps."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training.model import Geometry, Llama
from training.tokens import TokenRows
from training.trainer import Budget, Hyper, Run

GEOMETRY = Geometry(hidden=32, layers=2, heads=2, kv_heads=1, ffn=64, vocab=64, context=2048)
HYPER = Hyper(tokens_per_batch=512, batches_per_step=1, compile=False)


@dataclass(frozen=True)
class Counting:
    """A trained target, its held rows, their losses by domain, and the folder with its log."""

    model: Llama
    held: TokenRows
    losses: dict[str, float]
    work: Path


def make_run(folder: Path, budget: Budget | int, **given: Any) -> Run:
    """Return a silent run in `folder`; budget: a number of tokens, or the whole budget."""
    if isinstance(budget, int):
        budget = Budget(tokens=budget, warmup_tokens=2_000)
    settings = {"hyper": HYPER, "report": lambda _: None} | given
    return Run(folder / "work", folder / "out", budget, **settings)


def make_rows(count: int, seed: int = 0, longest: int = 60, domain: str = "counting") -> TokenRows:
    """Counting sequences: the next token is the last one plus a step named by the first token."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        step, start = int(rng.integers(1, 4)), int(rng.integers(8, 60))
        length = int(rng.integers(8, longest))
        rows.append([1, 3 + step, *((start + step * i) % 56 + 8 for i in range(length))])
    lengths = [len(r) for r in rows]
    weight = np.concatenate([[0.25, 0.25] + [1.0] * (n - 2) for n in lengths])
    return TokenRows(
        np.concatenate(rows).astype(np.uint16),
        weight.astype(np.float32),
        np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        np.ones(count, dtype=np.float32),
        np.zeros(count, dtype=np.int16),
        (domain,),
    )
