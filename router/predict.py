"""Predicted seconds of a response, from the two factors of a routing table.

Predicted seconds = prefill + decode steps x seconds per step, where decode steps = (expected
output tokens - 1) / acceptance; the prefill emits the first token. Acceptance depends on the
prompt and is kept per cluster. Step time and prefill depend on the machine and the load and are
kept per method, so evidence about a slow replica serves every cluster.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from router.acceptance import HALF_LIFE, PRIOR_ANSWERS, Floats, acceptance, once
from schemas import RoutingTable

FULL_BATCH = 8.0
"""Sequences from which on a batch counts as full: a head that wins alone may lose there."""


def expected_output(table: RoutingTable, cluster: int) -> float:
    """Return the expected output tokens of a prompt of this cluster (-1: of any) without a limit.

    The profile's answers count as HALF_LIFE at most next to live ones.
    """
    return float(_uncut_output(table)[cluster])


@once
def usual_prompt(table: RoutingTable) -> float:
    """Return the mean tokens of the profiled prompts; without any the least of the grid."""
    prompts = table.provenance.get("prompt_tokens") or table.context_grid[:1]
    return float(sum(prompts) / len(prompts))


@once
def usual_context(table: RoutingTable) -> float:
    """Return the mean context of a usual response's steps."""
    return usual_prompt(table) + emitted_output(table, -1) / 2.0


def counted_output(table: RoutingTable, cluster: int, max_tokens: int) -> int:
    """Return the output tokens that loads count for a prompt of this cluster, at least 1.

    Many clients allow far more tokens than a response takes. Counted by that limit, such a response
    would take a replica's whole room.
    """
    return min(max_tokens, max(1, round(expected_output(table, cluster))))


def emitted_output(table: RoutingTable, cluster: int) -> float:
    """Return the expected output tokens under the limits that requests have set so far."""
    return float(_cut_output(table)[cluster])


@once
def _uncut_output(table: RoutingTable) -> Floats:
    return _output(table, table.live.output[:, 1])


@once
def _cut_output(table: RoutingTable) -> Floats:
    return _output(table, table.live.answers)


def _output(table: RoutingTable, live_count: Floats) -> Floats:
    """Return output tokens [k + 1] of every cluster and, last, of any cluster."""
    weight = np.minimum(1.0, HALF_LIFE / np.maximum(table.output_count, 1.0))
    offline = weight * table.output_count
    tokens = offline * table.output_tokens + table.live.output[:, 0]
    count = offline + live_count
    # Clusters are weighted as in the profile, because the live mix changes.
    often = table.output_count / max(1.0, float(table.output_count.sum()))
    if not often.any():
        return np.full(len(tokens) + 1, table.output_tokens.mean())
    mean = float((often * tokens / np.maximum(count, 1e-9)).sum())
    lean = PRIOR_ANSWERS * weight
    return np.append((tokens + lean * mean) / (count + lean), mean)


@dataclass(frozen=True)
class _Machine:
    """A table's times by method, as lists: prompts ask for single values, which are slow in arrays.

    steps: seconds [m][B][C]. step_ratio: live over profiled, alone. full_batch: logarithm of the
    further ratio in a full batch. prefill: constant and seconds per token. prefill_ratio: live over
    profiled.
    """

    steps: list[list[list[float]]]
    step_ratio: list[float]
    full_batch: list[float]
    prefill: list[tuple[float, float]]
    prefill_ratio: list[float]


@once
def _machine(table: RoutingTable) -> _Machine:
    return _Machine(
        steps=table.step_seconds.tolist(),
        step_ratio=table.live.step_ratio.tolist(),
        full_batch=np.log(table.live.batch_ratio).tolist(),
        prefill=[(constant, slope) for constant, slope in table.prefill_seconds.tolist()],
        prefill_ratio=table.live.prefill_ratio.tolist(),
    )


class StepTimes:
    """Step times of every method at one context length, computed when asked for."""

    __slots__ = ("_batches", "_left", "_machine", "_right", "_share", "_steps", "beyond")

    def __init__(self, table: RoutingTable, context: float) -> None:
        """Interpolate linearly in the context, and extrapolate beyond the longest of the grid.

        beyond: logarithm of the context over the longest; 0 within the grid.
        """
        contexts, last = table.context_grid, len(table.context_grid) - 1
        self._right = min(max(1, bisect_right(contexts, context)), last)
        self._left = max(0, self._right - 1)
        low, high = contexts[self._left], contexts[self._right]
        self._share = max(0.0, (context - low) / (high - low)) if high > low else 0.0
        self.beyond = log(max(1.0, context / high))
        self._machine = _machine(table)
        self._batches, self._steps = table.batch_grid, self._machine.steps

    def of(self, method: int, batch: float) -> float:
        """Return seconds per step in a batch of one method, linear beyond the grid's largest."""
        ratio = _ratio(self._machine, method, batch)
        batches, lines = self._batches, self._steps[method]
        right = min(bisect_right(batches, batch), len(batches) - 1)
        if right == 0:
            return ratio * self._at_context(lines[0])
        left = right - 1
        below = self._at_context(lines[left])
        if batch == batches[left]:
            return ratio * below
        slope = (self._at_context(lines[right]) - below) / (batches[right] - batches[left])
        return ratio * (below + slope * (batch - batches[left]))

    def mixed(self, counts: Mapping[int, float], batch: float) -> float:
        """Return seconds per step in a batch with this many sequences of each method (by index).

        It is the mean of the methods' step times in batches of their own, because one forward
        verifies all drafts and its time depends on its rows. With SmolLM2, a step of eight plain
        sequences takes 30 ms, of seven and one EAGLE-3 sequence 40, of four each 51, of eight
        EAGLE-3 sequences 76.
        """
        if len(counts) == 1:  # most batches are of one method
            return self.of(next(iter(counts)), batch)
        whole = sum(counts.values())
        return sum([count * self.of(m, batch) for m, count in counts.items()]) / whole

    def _at_context(self, line: list[float]) -> float:
        """Return profiled seconds from those [C] at the grid's contexts."""
        share = self._share
        seconds = (1.0 - share) * line[self._left] + share * line[self._right]
        # Measured times may fall with the context by chance.
        return seconds if share <= 1.0 else max(seconds, line[self._right])


def batch_fullness(batch: float) -> float:
    """Return how full a batch counts, from 0 (one sequence) to 1 (FULL_BATCH), logarithmically."""
    return min(1.0, log(batch) / log(FULL_BATCH)) if batch > 1.0 else 0.0


def step_ratio(table: RoutingTable, method: int, batch: float) -> float:
    """Return the ratio of live to profiled step time for a method in a batch of this size."""
    return _ratio(_machine(table), method, batch)


def _ratio(machine: _Machine, method: int, batch: float) -> float:
    full = machine.full_batch[method]
    alone = machine.step_ratio[method]
    return alone * exp(full * batch_fullness(batch)) if full and batch > 1.0 else alone


def measured_prefill(table: RoutingTable, method: int, read_tokens: float) -> float:
    """Return the profiled seconds to the first token when this many prompt tokens are read."""
    constant, per_token = _machine(table).prefill[method]
    return constant + per_token * read_tokens


def prefill_seconds(
    table: RoutingTable, method: int, prompt_tokens: float, held: float = 0.0
) -> float:
    """Predict seconds from admission to the first token.

    held: how many of the prompt's tokens the prefix cache holds. What other prompts found there
    does not count: else a client that repeats its prompts would draw everybody's to a method.
    """
    machine = _machine(table)
    constant, per_token = machine.prefill[method]
    return machine.prefill_ratio[method] * (constant + per_token * (prompt_tokens - held))


def prefills(table: RoutingTable, prompt_tokens: float) -> list[float]:
    """Predict seconds from admission to the first token for every method [m]."""
    machine = _machine(table)
    return [
        ratio * (constant + per_token * prompt_tokens)
        for ratio, (constant, per_token) in zip(machine.prefill_ratio, machine.prefill, strict=True)
    ]


@once
def reading_tokens(table: RoutingTable) -> list[float]:
    """Return for every method [m] the output tokens that take as long as reading a prompt token.

    An output token takes its share of a step of a batch of FULL_BATCH, as when replicas are busy.
    """
    machine, times = _machine(table), StepTimes(table, usual_prompt(table))
    accepted = acceptance(table).mean(axis=(0, 2)).tolist()
    return [
        machine.prefill_ratio[m]
        * line[1]
        * accepted[m]
        * FULL_BATCH
        / max(times.of(m, FULL_BATCH), 1e-9)
        for m, line in enumerate(machine.prefill)
    ]


def uncached_seconds(
    table: RoutingTable,
    method: str,
    prompts: Sequence[int],
    steps: int,
    batch: Mapping[str, float],
) -> float:
    """Predict seconds until a response's decode step number `steps`, at the latest.

    prompts: lengths in tokens of the prompts that the replica reads before. No token of them counts
    as cached. batch: number of sequences by method.
    """
    m = table.methods.index(method)
    reading = sum(measured_prefill(table, m, tokens) for tokens in prompts)
    counts = {table.methods.index(name): n for name, n in batch.items() if name in table.methods}
    times = StepTimes(table, max(prompts, default=0) + steps)
    step = times.mixed(counts, max(1.0, sum(counts.values())))
    return float(table.live.prefill_ratio[m]) * reading + steps * step
