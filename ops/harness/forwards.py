"""Targets without an engine, and timings of their forward passes."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from workers.torch_engine.models.layout import Span
from workers.torch_engine.models.model import Model

CONTEXT = 256
"""Tokens each sequence already has in its cache."""
ROUNDS = 41


@torch.inference_mode()
def answer_logits(model: Model, before: Sequence[int], answer: Sequence[int]) -> torch.Tensor:
    """Return the logits [len(answer), vocab] at each token of an answer, from one forward pass."""
    pool = model.make_pool(1, len(before) + len(answer))
    span = Span(pool.acquire(), [*before, *answer[:-1]], logits_from=len(before) - 1)
    logits, _ = model.forward(model.lay_out([span], pool), pool)
    return logits


def forward(model: Model, sequences: int, tokens: int) -> Callable[[], object]:
    """Return a forward pass of `tokens` tokens for each of `sequences` sequences."""
    pool = model.make_pool(sequences, CONTEXT + tokens)
    leases = [pool.acquire() for _ in range(sequences)]
    for lease in leases:
        lease.length = CONTEXT
    spans = [Span(lease, list(range(1, tokens + 1))) for lease in leases]
    return lambda: model.forward(model.lay_out(spans, pool), pool)


def median_seconds(forwards: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median seconds of each forward pass. They take turns, so noise affects all."""
    seconds: dict[str, list[float]] = {name: [] for name in forwards}
    for _ in range(ROUNDS):
        for name, run in forwards.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}
