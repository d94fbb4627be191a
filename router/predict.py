"""Seconds that a prompt will take, from the two factors of a routing table.

Predicted seconds = prefill + decode steps x seconds per step, where decode steps = (expected
output tokens - 1) / acceptance; the prefill emits the first token. Acceptance depends on the
prompt and is kept per cluster; step time and prefill depend on the machine and the load and are
kept per method, so that evidence about one slow replica serves every cluster.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import TypeVar

import numpy as np
from scipy.special import ndtr

from router.belief import OFFLINE_ANSWERS, Floats, acceptance, once
from router.step_ratio import crowd
from schemas import RoutingTable

MIN_EVIDENCE_ANSWERS = 8.0
"""Two methods are compared for a cluster's favourite only with so many answers behind each, those
that the cell's other temperature bands lend included: a profile at temperature 0 chooses for the
other bands until they have answers of their own."""

OUTPUT_PRIOR = 5.0
"""Answers' worth of all clusters' mean length in each cluster's."""

TYPICAL_PROMPT_TOKENS = 64.0

Acceptance = TypeVar("Acceptance", float, Floats)


def expected_output(table: RoutingTable, cluster: int) -> float:
    """Output tokens of a prompt of this cluster (-1: of any), were its answer not cut off; the
    profile's answers count as at most OFFLINE_ANSWERS beside live ones."""
    return float(_uncut_output(table)[cluster])


def emitted_output(table: RoutingTable, cluster: int) -> float:
    """Output tokens of such a prompt under the limits that requests have set so far."""
    return float(_cut_output(table)[cluster])


@once
def _uncut_output(table: RoutingTable) -> Floats:
    return _output(table, table.live_output[:, 1])


@once
def _cut_output(table: RoutingTable) -> Floats:
    return _output(table, table.live_answers)


def _output(table: RoutingTable, live_count: Floats) -> Floats:
    """Output tokens [k + 1] of every cluster and, at the end, of any."""
    weight = np.minimum(1.0, OFFLINE_ANSWERS / np.maximum(table.output_count, 1.0))
    offline = weight * table.output_count
    tokens = offline * table.output_tokens + table.live_output[:, 0]
    count = offline + live_count
    # Over clusters as often as the profile saw them: the live mix passes.
    often = table.output_count / max(1.0, float(table.output_count.sum()))
    if not often.any():
        return np.full(len(tokens) + 1, table.output_tokens.mean())
    mean = float((often * tokens / np.maximum(count, 1e-9)).sum())
    lean = OUTPUT_PRIOR * weight
    return np.append((tokens + lean * mean) / (count + lean), mean)


@dataclass(frozen=True)
class _Machine:
    """What a table says of the machine, as lists: every prompt asks for single values, which
    arrays are slow to give. By method: `steps` [m][B][C], their ratio and the logarithm of the
    further one in a full batch; the prefill's line, its ratio, and the share of prompts that is
    cached."""

    steps: list[list[list[float]]]
    step_ratio: list[float]
    full_batch: list[float]
    prefill: list[tuple[float, float]]
    prefill_ratio: list[float]
    cached_share: list[float]


@once
def _machine(table: RoutingTable) -> _Machine:
    return _Machine(
        steps=table.step_seconds.tolist(),
        step_ratio=table.live_step_ratio.tolist(),
        full_batch=np.log(table.live_batch_ratio).tolist(),
        prefill=[(constant, slope) for constant, slope in table.prefill_seconds.tolist()],
        prefill_ratio=table.live_prefill_ratio.tolist(),
        cached_share=table.live_cached_share.tolist(),
    )


class StepTimes:
    """Seconds of every method's steps at one context length. Of the grid's many values a prompt
    asks for a few, which are computed as they are asked for."""

    __slots__ = ("_batches", "_left", "_machine", "_right", "_share", "_steps")

    def __init__(self, table: RoutingTable, context: float) -> None:
        """Linear in the context on the grid, and its nearest end beyond it."""
        contexts, last = table.context_grid, len(table.context_grid) - 1
        self._right = min(max(1, bisect_right(contexts, context)), last)
        self._left = max(0, self._right - 1)
        low, high = contexts[self._left], contexts[self._right]
        self._share = min(1.0, max(0.0, (context - low) / (high - low))) if high > low else 0.0
        self._machine = _machine(table)
        self._batches, self._steps = table.batch_grid, self._machine.steps

    def of(self, method: int, batch: float) -> float:
        """Of a batch of one method, extended linearly beyond the grid's largest."""
        return self._measured(method, batch) * _ratio(self._machine, method, batch)

    def _measured(self, method: int, batch: float) -> float:
        batches = self._batches
        right = bisect_right(batches, batch)
        if right == len(batches):
            right -= 1
        if right == 0:
            return self._on_grid(method, 0)
        left = right - 1
        below = self._on_grid(method, left)
        if batch == batches[left]:
            return below
        slope = (self._on_grid(method, right) - below) / (batches[right] - batches[left])
        return below + slope * (batch - batches[left])

    def mixed(self, counts: Mapping[int, float], batch: float) -> float:
        """Of a batch that methods share, so many sequences of each of them: the mean of what a
        batch of each one's own takes. One forward verifies all drafts, and what a step takes are
        its rows: beside seven plain sequences one of EAGLE-3's made a step of SmolLM2's take 40 ms,
        four of each 51, where eight of them take 76 and eight plain ones 30."""
        whole = sum(counts.values())
        return sum([count * self.of(m, batch) for m, count in counts.items()]) / whole

    def _on_grid(self, method: int, batch: int) -> float:
        """At one of the grid's batch sizes, by its index."""
        line = self._steps[method][batch]
        return (1.0 - self._share) * line[self._left] + self._share * line[self._right]


def step_ratio(table: RoutingTable, method: int, batch: float) -> float:
    """How many times as long as measured a method's steps take here, in such a batch."""
    return _ratio(_machine(table), method, batch)


def ends(table: RoutingTable) -> Floats:
    """The same of every method alone and in a full batch [m, 2]."""
    alone = table.live_step_ratio
    return np.stack([alone, alone * table.live_batch_ratio], axis=1)


def step_ratios(table: RoutingTable) -> Floats:
    """The same of every method on the grid of batches [m, B]."""
    methods = range(len(table.methods))
    return np.asarray([[step_ratio(table, m, b) for b in table.batch_grid] for m in methods])


def _ratio(machine: _Machine, method: int, batch: float) -> float:
    full = machine.full_batch[method]
    alone = machine.step_ratio[method]
    return alone * exp(full * crowd(batch)) if full and batch > 1.0 else alone


def step_seconds(table: RoutingTable, method: int, batch: float, context: float) -> float:
    """Seconds of a step, bilinear on the grid, extended linearly beyond its largest batch."""
    return StepTimes(table, context).of(method, batch)


def measured_prefill(table: RoutingTable, method: int, read_tokens: float) -> float:
    """Seconds until the first token where so many prompt tokens are read, as measured offline."""
    constant, per_token = _machine(table).prefill[method]
    return constant + per_token * read_tokens


def prefill_seconds(table: RoutingTable, method: int, prompt_tokens: float) -> float:
    """Seconds from admission to the first token, of a prompt of which the method finds its usual
    share in the prefix cache."""
    machine = _machine(table)
    read = prompt_tokens * (1.0 - machine.cached_share[method])
    constant, per_token = machine.prefill[method]
    return machine.prefill_ratio[method] * (constant + per_token * read)


def prefills(table: RoutingTable, prompt_tokens: float) -> list[float]:
    """The same of every method [m]."""
    machine = _machine(table)
    return [
        ratio * (line[0] + line[1] * (prompt_tokens * (1.0 - cached)))
        for ratio, line, cached in zip(
            machine.prefill_ratio, machine.prefill, machine.cached_share, strict=True
        )
    ]


def predicted_seconds(
    table: RoutingTable,
    accepted: Acceptance,
    method: int,
    prompt_tokens: float,
    output_tokens: float,
    batch: float = 1.0,
) -> Acceptance:
    """Seconds from admission to the last token, in a batch of the method's own.

    `accepted`: tokens per step of the method, one or an array of any shape, which the seconds have
    as well.
    """
    step = step_seconds(table, method, batch, prompt_tokens + output_tokens / 2.0)
    steps = max(0.0, output_tokens - 1.0) / accepted
    return prefill_seconds(table, method, prompt_tokens) + steps * step


def typical_seconds(table: RoutingTable) -> Floats:
    """Predicted seconds [k, m, t] of each cluster's typical prompt in each temperature band, alone
    on a replica."""
    accepted = acceptance(table)
    prompts = table.provenance.get("prompt_tokens", [])
    seconds = np.empty(accepted.shape)
    methods = range(len(table.methods))
    for k in range(len(table.assignment)):
        prompt = prompts[k] if k < len(prompts) else TYPICAL_PROMPT_TOKENS
        output = emitted_output(table, k)
        times = StepTimes(table, prompt + output / 2.0)
        alone = np.asarray([times.of(m, 1.0) for m in methods])
        steps = max(0.0, output - 1.0) / accepted[k]
        seconds[k] = np.asarray(prefills(table, prompt))[:, None] + steps * alone[:, None]
    return seconds


def fastest(table: RoutingTable) -> tuple[tuple[str, ...], ...]:
    """The method with the least predicted seconds [k][t] for each cluster's typical prompt."""
    best = typical_seconds(table).argmin(axis=1)
    return tuple(tuple(table.methods[m] for m in row) for row in best)


def favourite(
    seconds: Sequence[float] | Floats,
    answers: Sequence[float] | Floats,
    errors: Sequence[float] | Floats,
    current: int,
    margin: float,
    confidence: float,
    admissible: Sequence[int],
) -> int:
    """Which method stays or becomes the favourite, from `seconds`, `answers` of evidence and the
    standard errors of log seconds, [m] each.

    The current one keeps its place unless another is predicted to be more than `margin` faster,
    is faster with a probability of at least `confidence`, and both have MIN_EVIDENCE_ANSWERS
    behind their acceptance.
    """
    best = min(admissible, key=lambda m: (seconds[m], m))
    if current not in admissible:
        return best
    solid = [m for m in admissible if answers[m] >= MIN_EVIDENCE_ANSWERS]
    if current not in solid:
        return current
    best = min(solid, key=lambda m: (seconds[m], m))
    if seconds[best] * (1.0 + margin) >= seconds[current]:
        return current
    lead = np.log(seconds[current] / seconds[best]) / np.hypot(errors[current], errors[best])
    return best if ndtr(lead) >= confidence else current
