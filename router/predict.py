"""Seconds that a prompt will take, from the two factors of a routing table.

Predicted seconds = prefill + decode steps x seconds per step, where decode steps = (expected
output tokens - 1) / acceptance; the prefill emits the first token. Acceptance depends on the
prompt and is kept per cluster; step time depends on the machine and the load and is kept per
method, so that evidence about one slow replica serves every cluster.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from schemas import TEMPERATURE_BANDS, RoutingTable

Floats = NDArray[np.float64]

PRIOR_STEPS = 50.0
"""Steps of a method's acceptance over all clusters that every cell starts with, so that a cell
with three answers in it does not decide anything."""

ANSWER_TOKENS = 32.0
"""Tokens of evidence that are worth one answer, and the most that one answer is counted for."""

OFFLINE_ANSWERS = 16.0
"""Offline evidence counts as at most so many answers beside live ones: however much was measured,
live traffic may differ from it by a tenth (ANSWER_SPREAD / sqrt(16))."""

MIN_EVIDENCE_ANSWERS = 8.0
"""Two methods are compared for a cluster's favourite only with so many answers behind each."""

ANSWER_SPREAD = 0.4
"""Standard deviation of an answer's log acceptance around its cluster's: 0.17 to 0.43 for the
methods that speculate, measured on the demo family. Answers differ by far more than the steps of
one answer do, so evidence is counted in answers."""

CLUSTER_ANSWERS = 4.0
"""Answers' worth of what the other clusters say of a cell: its log acceptance lies within 0.2 of
the method's mean over clusters (0.06 to 0.29 there), which is ANSWER_SPREAD / sqrt(4)."""

OUTPUT_PRIOR = 5.0
"""Answers' worth of all clusters' mean length in each cluster's."""

STEP_SPREAD = 0.15
"""Standard deviation of an answer's log step time around its method's: 0.16 to 0.18 there, of
which contexts of different lengths are a part."""

STEP_PRIOR = 0.5
"""Answers' worth of belief that a method's steps are as fast as measured: within a fifth of it
(STEP_SPREAD / sqrt(0.5))."""

LEAST_ERROR = 0.05
"""No prediction's standard error is below this, however many answers are behind it: the traffic of
tomorrow is not the one that was counted."""

TYPICAL_PROMPT_TOKENS = 64.0


def evidence(table: RoutingTable) -> tuple[Floats, Floats]:
    """Tokens and steps [k, m, t] behind every cell's acceptance: offline, capped, plus live."""
    weight = _offline_weight(table)
    return (
        weight * table.acceptance_tokens + table.live_tokens,
        weight * table.acceptance_steps + table.live_steps,
    )


def acceptance(table: RoutingTable) -> Floats:
    """Tokens per decode step [k, m, t], at least 1.

    A cell leans on its method's mean over clusters in the same temperature band, a band without
    evidence on the nearest one that has some, a method without any on plain decoding's 1.
    """
    tokens, steps = evidence(table)
    # No cluster speaks for the others with all its live answers: those that a method gets most
    # prompts from are those it is good at.
    voice = np.minimum(1.0, OFFLINE_ANSWERS * ANSWER_TOKENS / np.maximum(tokens, 1.0))
    band_tokens, band_steps = (voice * tokens).sum(axis=0), (voice * steps).sum(axis=0)
    prior = np.ones_like(band_tokens)
    bands = range(len(TEMPERATURE_BANDS))
    for m in range(len(table.methods)):
        seen = [b for b in bands if band_steps[m, b] > 0.0]
        for b in bands:
            if seen:
                near = min(seen, key=lambda s: abs(s - b))
                prior[m, b] = band_tokens[m, near] / band_steps[m, near]
    # Capped together with the cell's offline evidence: without live answers nothing changes.
    lean = PRIOR_STEPS * _offline_weight(table)
    smoothed: Floats = np.maximum(1.0, (tokens + lean * prior) / (steps + lean))
    return smoothed


def answers(table: RoutingTable) -> Floats:
    """Answers' worth of evidence [k, m, t] behind every cell's acceptance."""
    return np.asarray(evidence(table)[0] / ANSWER_TOKENS)


def log_error(table: RoutingTable) -> Floats:
    """Standard error [k, m, t] of the logarithm of predicted seconds: of acceptance and step time
    together, as independent, and never below LEAST_ERROR."""
    accepted = ANSWER_SPREAD**2 / (answers(table) + CLUSTER_ANSWERS)
    step = STEP_SPREAD**2 / (table.live_step_weight + STEP_PRIOR)
    return np.sqrt(accepted + step[None, :, None] + LEAST_ERROR**2)


def _offline_weight(table: RoutingTable) -> Floats:
    """What share [k, m, t] of the offline evidence counts.

    At most OFFLINE_ANSWERS; and what live answers contradict, by more than the spread of both
    explains, counts for as little as its distance from them: an empirical-Bayes estimate of how
    far this cell's traffic has moved from the profile's.
    """
    offline = table.acceptance_tokens / ANSWER_TOKENS
    live = table.live_tokens / ANSWER_TOKENS
    variance = ANSWER_SPREAD**2
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.log(table.acceptance_tokens / table.acceptance_steps) - np.log(
            table.live_tokens / table.live_steps
        )
        moved = gap**2 - variance / np.minimum(offline, OFFLINE_ANSWERS) - variance / live
    moved = np.maximum(0.0, np.nan_to_num(moved, nan=0.0, neginf=0.0))
    counted = variance / (variance / np.clip(offline, 1e-9, OFFLINE_ANSWERS) + moved)
    return np.asarray(np.where(offline > 0.0, counted / np.maximum(offline, 1e-9), 1.0))


def expected_output(table: RoutingTable, cluster: int) -> float:
    """Output tokens expected of a prompt of this cluster (-1: of any); the profile's answers count
    as at most OFFLINE_ANSWERS beside live ones."""
    weight = np.minimum(1.0, OFFLINE_ANSWERS / np.maximum(table.output_count, 1.0))
    offline = weight * table.output_count
    tokens = offline * table.output_tokens + table.live_output[:, 0]
    count = offline + table.live_output[:, 1]
    # Over clusters as often as the profile saw them: the live mix passes.
    often = table.output_count / max(1.0, float(table.output_count.sum()))
    if not often.any():
        return float(table.output_tokens.mean())
    mean = float((often * tokens / np.maximum(count, 1e-9)).sum())
    if cluster < 0:
        return mean
    lean = OUTPUT_PRIOR * weight[cluster]
    return float((tokens[cluster] + lean * mean) / (count[cluster] + lean))


def step_seconds(table: RoutingTable, method: int, batch: float, context: float) -> float:
    """Seconds of a step, bilinear on the grid, extended linearly beyond its largest batch."""
    grid = table.step_seconds[method]
    contexts, batches = np.asarray(table.context_grid, float), np.asarray(table.batch_grid, float)
    column = np.asarray([np.interp(context, contexts, row) for row in grid])
    if batch > batches[-1] and len(batches) > 1:
        slope = (column[-1] - column[-2]) / (batches[-1] - batches[-2])
        seconds = column[-1] + slope * (batch - batches[-1])
    else:
        seconds = np.interp(batch, batches, column)
    return float(seconds * table.live_step_ratio[method])


def prefill_seconds(table: RoutingTable, method: int, prompt_tokens: float) -> float:
    constant, per_token = table.prefill_seconds[method]
    return float(constant + per_token * prompt_tokens)


def predicted_seconds(
    table: RoutingTable,
    accepted: Floats,
    method: int,
    prompt_tokens: float,
    output_tokens: float,
    batch: float = 1.0,
) -> float:
    """Seconds from admission to the last token. `accepted` [m]: tokens per step."""
    steps = max(0.0, output_tokens - 1.0) / accepted[method]
    context = prompt_tokens + output_tokens / 2.0
    step = step_seconds(table, method, batch, context)
    return prefill_seconds(table, method, prompt_tokens) + float(steps) * step


def typical_seconds(table: RoutingTable) -> Floats:
    """Predicted seconds [k, m] of each cluster's typical prompt, greedy, alone on a replica."""
    accepted = acceptance(table)
    prompts = table.provenance.get("prompt_tokens", [])
    seconds = np.empty((len(table.assignment), len(table.methods)))
    for k in range(len(table.assignment)):
        prompt = prompts[k] if k < len(prompts) else TYPICAL_PROMPT_TOKENS
        output = expected_output(table, k)
        for m in range(len(table.methods)):
            seconds[k, m] = predicted_seconds(table, accepted[k, :, 0], m, prompt, output)
    return seconds


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
