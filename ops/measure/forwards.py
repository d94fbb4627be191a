"""Forwards of models, timed side by side."""

import statistics
import time
from collections.abc import Callable, Mapping

from workers.torch_engine.models.layout import Span
from workers.torch_engine.models.model import Model

CONTEXT = 256
"""Tokens each sequence already has in its cache."""
ROUNDS = 41


def forward(model: Model, sequences: int, tokens: int) -> Callable[[], object]:
    """A forward of so many tokens for each of so many sequences, laid out anew each time."""
    pool = model.make_pool(sequences, CONTEXT + tokens)
    leases = [pool.acquire() for _ in range(sequences)]
    for lease in leases:
        lease.length = CONTEXT
    spans = [Span(lease, list(range(1, tokens + 1))) for lease in leases]
    return lambda: model.forward(model.lay_out(spans, pool), pool)


def median_seconds(forwards: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Of each; they take turns, so that a slow moment hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in forwards}
    for _ in range(ROUNDS):
        for name, run in forwards.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}
