"""Seconds that a prompt will take, from the two factors of a routing table.

Predicted seconds = prefill + decode steps x seconds per step, where decode steps = (expected
output tokens - 1) / acceptance; the prefill emits the first token. Acceptance depends on the
prompt and is kept per cluster; step time and prefill depend on the machine and the load and are
kept per method, so that evidence about one slow replica serves every cluster.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from scipy.special import ndtr

from router.belief import OFFLINE_ANSWERS, Floats, acceptance, once
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
class StepTimes:
    """Seconds of every method's steps at one context length: `columns` [m][B] on the table's grid
    of batch sizes. Lists, since every prompt asks for single values."""

    batches: Sequence[float]
    columns: Sequence[Sequence[float]]

    @classmethod
    def at(cls, table: RoutingTable, context: float) -> Self:
        """Linear in the context on the grid, and its nearest end beyond it."""
        contexts, last = table.context_grid, len(table.context_grid) - 1
        right = min(max(1, bisect_right(contexts, context)), last)
        left = max(0, right - 1)
        width = contexts[right] - contexts[left]
        share = min(1.0, max(0.0, (context - contexts[left]) / width)) if width else 0.0
        grid = table.step_seconds
        columns = (1.0 - share) * grid[:, :, left] + share * grid[:, :, right]
        return cls(table.batch_grid, (columns * table.live_step_ratio[:, None]).tolist())

    def of(self, method: int, batch: float) -> float:
        """Of a batch of one method, extended linearly beyond the grid's largest."""
        batches, column = self.batches, self.columns[method]
        right = min(bisect_right(batches, batch), len(batches) - 1)
        if right == 0:
            return column[0]
        left = right - 1
        slope = (column[right] - column[left]) / (batches[right] - batches[left])
        return column[left] + slope * (batch - batches[left])

    def slowest(self, methods: Iterable[int], batch: float) -> float:
        """Of a batch that these methods share: the slowest one's."""
        return max(self.of(m, batch) for m in methods)


def step_seconds(table: RoutingTable, method: int, batch: float, context: float) -> float:
    """Seconds of a step, bilinear on the grid, extended linearly beyond its largest batch."""
    return StepTimes.at(table, context).of(method, batch)


def measured_prefill(table: RoutingTable, method: int, read_tokens: float) -> float:
    """Seconds until the first token where so many prompt tokens are read, as measured offline."""
    constant, per_token = table.prefill_seconds[method]
    return float(constant + per_token * read_tokens)


def prefill_seconds(table: RoutingTable, method: int, prompt_tokens: float) -> float:
    """Seconds from admission to the first token, of a prompt of which the method finds its usual
    share in the prefix cache."""
    read = prompt_tokens * (1.0 - table.live_cached_share[method])
    return float(table.live_prefill_ratio[method] * measured_prefill(table, method, read))


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
    for k in range(len(table.assignment)):
        prompt = prompts[k] if k < len(prompts) else TYPICAL_PROMPT_TOKENS
        output = emitted_output(table, k)
        for m in range(len(table.methods)):
            seconds[k, m] = predicted_seconds(table, accepted[k, m], m, prompt, output)
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
