"""Step costs of a simulated replica: a routing table's, or published ones of a GPU."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ops.harness.boundary import InputError
from router import predict
from router.favourites import with_favourites
from schemas import MethodSpec, RoutingTable

MEASURED = "measured"
CONTEXTS = (1, 512, 1024, 2048, 4096, 8192)
"""Tokens at which published costs enter a routing table; between them both are linear."""


class StepCosts(Protocol):
    """Seconds on one replica; methods are indices of the table's."""

    def prefill(self, method: int, prompt_tokens: int, /) -> float:
        """Of reading a prompt whole, the first token's forward included."""
        ...

    def step(self, counts: Sequence[int], context: float, rows: float, /) -> float:
        """Return the seconds of a decode step of counts[m] sequences of each method.

        context: their tokens in the KV cache. rows: the tokens that the step verifies.
        """
        ...


class MeasuredCosts:
    """A routing table's: bilinear on its grid, a mixed batch as `StepTimes.mixed` says."""

    def __init__(self, table: RoutingTable) -> None:
        self._table = table
        self._contexts = [float(context) for context in table.context_grid]
        self._known: dict[tuple[int, int], list[float]] = {}

    def prefill(self, method: int, prompt_tokens: int, /) -> float:
        """Return the seconds to read the part of a prompt that usually misses the prefix cache."""
        return predict.prefill_seconds(self._table, method, prompt_tokens)

    def step(self, counts: Sequence[int], context: float, _rows: float, /) -> float:
        """Return the step time that `router.predict` predicts; rows are part of the measurement."""
        batch = sum(counts)
        mean = context / batch
        own = [count * self._of(m, batch, mean) for m, count in enumerate(counts) if count]
        return sum(own) / batch

    def _of(self, method: int, batch: int, context: float) -> float:
        seconds = self._known.get((method, batch))
        if seconds is None:
            seconds = [
                predict.step_seconds(self._table, method, batch, at) for at in self._contexts
            ]
            self._known[method, batch] = seconds
        right = bisect_right(self._contexts, context)
        if right == 0 or right == len(seconds):
            return seconds[max(0, right - 1)]
        left = right - 1
        share = (context - self._contexts[left]) / (self._contexts[right] - self._contexts[left])
        return seconds[left] + share * (seconds[right] - seconds[left])


@dataclass(frozen=True)
class Published:
    """Published step costs of a model on a GPU: a linear fit, in seconds.

    fixed, overhead: of each target forward, and around it. row: per token verified or read.
    kv_token: per token in the KV cache. drafting: by drafter, the seconds that a step's drafting
    takes, and the share of the target's forward that it takes besides.
    """

    source: str
    fixed: float
    overhead: float
    row: float
    kv_token: float
    drafting: dict[str, tuple[float, float]]


PUBLISHED = {
    "h100-llama-8b": Published(
        source="Liu et al., Speculative Decoding: Performance or Illusion?, arXiv 2601.11580: "
        "Llama-3.1-8B on one H100 under vLLM 0.10, as fitted in the simulator published with it "
        "(SpecDecode-Bench/simulator); EAGLE-3 drafts in the time of EAGLE (section 5.1)",
        fixed=5.88590713e-3,
        overhead=1.20683946e-3,
        row=2.10103129e-5,
        kv_token=3.92645679e-8,
        drafting={
            "none": (0.0, 0.0),
            "ngram": (0.0, 0.005875),
            "eagle": (2.13526175e-3, 0.0),
            "eagle3": (2.13526175e-3, 0.0),
        },
    ),
}


class PublishedCosts:
    """Published figures, for the methods of a table."""

    def __init__(self, figures: Published, methods: Sequence[MethodSpec]) -> None:
        """Raises InputError for methods that nothing was published of."""
        known = figures.drafting
        unknown = [m.name for m in methods if m.tree != "chain" or m.drafter not in known]
        if unknown:
            raise InputError(
                f"--costs: nothing is published of {', '.join(unknown)}; leave them out with "
                f"--methods (chains of {', '.join(known)} are known)"
            )
        self.figures = figures
        self._drafters = [m.drafter for m in methods]

    def prefill(self, _method: int, prompt_tokens: int, /) -> float:
        """One forward of the target over the prompt; the drafter's own is not in the figures."""
        figures = self.figures
        return figures.fixed + figures.overhead + prompt_tokens * figures.row

    def step(self, counts: Sequence[int], context: float, rows: float, /) -> float:
        """Return the target's forward plus the longest drafting of the methods in the batch."""
        figures = self.figures
        forward = figures.overhead + figures.fixed + context * figures.kv_token + rows * figures.row
        drafters = [d for d, count in zip(self._drafters, counts, strict=True) if count]
        drafts = [figures.drafting[drafter] for drafter in drafters]
        return forward + max(own + share * (forward - figures.overhead) for own, share in drafts)


def retimed_by(
    costs: StepCosts, table: RoutingTable, widths: Sequence[float], max_batch: int
) -> RoutingTable:
    """The table with these costs in the place of its own, so that routing knows the hardware.

    widths: by method the rows that a sequence's step verifies, mean. Favourites are chosen anew.
    """
    count = len(table.methods)
    batches = tuple(2**i for i in range(max_batch.bit_length())) or (1,)
    seconds = np.empty((count, len(batches), len(CONTEXTS)))
    prefills = np.empty((count, 2))
    for m in range(count):
        for b, batch in enumerate(batches):
            counts = [batch * (other == m) for other in range(count)]
            for c, context in enumerate(CONTEXTS):
                seconds[m, b, c] = costs.step(counts, batch * context, batch * widths[m])
        first = costs.prefill(m, 0)
        prefills[m] = first, costs.prefill(m, 1) - first
    timed = table.model_copy(
        update={
            "batch_grid": batches,
            "context_grid": CONTEXTS,
            "step_seconds": seconds,
            "step_count": np.ones_like(seconds),
            "prefill_seconds": prefills,
        }
    )
    timed = timed.with_live(
        step_ratio=np.ones(count),
        batch_ratio=np.ones(count),
        context_slope=np.zeros(count),
        step_weight=np.zeros(count),
        prefill_ratio=np.ones(count),
    )
    return with_favourites(timed, table.default_method)
