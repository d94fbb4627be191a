"""How fast this machine runs each method now, compared with the profile.

A response's step and prefill times are divided by the predicted ones. The logarithms of these
ratios are summed per method, recent responses weighted more. A method's ratio is the product of a
factor that all share (another machine, other processes on this one) and one of its own.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from router import decaying_sums, evidence, predict
from router.decaying_sums import UNTRIED_HALF_LIVES, DecayingSums
from router.evidence import Floats
from schemas import DecodeStats, Observation, RoutingTable
from schemas.observation import WARM_UP

OWN_HALF_LIFE = 8.0
"""Half-life of step and prefill ratios, in responses of the same method. One response averages tens
of steps or prompt tokens, so a few responses suffice."""

ALONE_BATCH = 1.5
"""Mean sequences per step up to which a response counts as decoded alone."""

OUTLIER = 1.0
"""Deviation of a log time from its prediction beyond which a second answer has to confirm it.
Pauses of the machine make single answers hundreds of times as long; a machine that has become slow
makes the next one long too."""

FULL_STEPS = 8
"""Decode steps from which on a response counts in full for step time. One of a single step says
little."""

LEAST_READ = 32
"""Tokens of a partly cached prompt that must be left to read for its prefill time to count. The
profile times whole prompts, and a forward pass over a few tokens takes longer than its fit says."""

STEP_NOISE = (evidence.STEP_SPREAD / 0.47) ** 2
"""Variance of a response's log step time, as a share of that of a ratio before any answer (0.47: a
factor of 1.6)."""

LEAST_DOUBT = 0.05
"""Least doubt about a ratio, as a share of the greatest in a batch. It limits what few unknown
sequences among known ones are blamed for to 2.2 times (1 / (2 sqrt(0.05))) the deviation."""

ENDS = 2
"""Step ratios are kept for a batch of one and for a full batch. In between, the logarithm of the
ratio is linear in the logarithm of the batch size."""


class StepTiming(NamedTuple):
    """The step time of one response.

    log_ratio: logarithm of the measured over the predicted step time. parts: for each method in
    the batch (by index) its share of the sequences, and its share of the predicted step time.
    beyond: logarithm of the context over the longest of the profile's grid; 0 within it.
    """

    log_ratio: float
    parts: Mapping[int, tuple[float, float]]
    beyond: float = 0.0


class MachineSpeed:
    """Ratios of live to profiled time for m methods.

    log_batch_ratio: logarithm [m] of the further step ratio in a full batch before any answer, as
    a promoted table has it.
    """

    def __init__(self, methods: int, log_batch_ratio: Floats | None = None) -> None:
        def sums(rows: int, *names: str) -> DecayingSums:
            return DecayingSums(rows, names, OWN_HALF_LIFE)

        self._steps = sums(methods * ENDS, "log_step_ratio", "step_ratio_weight")
        self._context = sums(methods, "log_context_ratio", "context_weight")
        self._prefill = sums(methods, "log_prefill_ratio", "prefill_ratio_weight")
        self._doubt = np.eye(methods * (ENDS + 1))
        self._forget = UNTRIED_HALF_LIVES * decaying_sums.HALF_LIFE
        self._latest = np.zeros((methods, ENDS + 1))
        """How far each method's latest log step times at both ends, and its latest log prefill
        time, were from the prediction."""
        self._before = np.zeros(methods) if log_batch_ratio is None else log_batch_ratio

    def observe(self, table: RoutingTable, observation: Observation) -> None:
        """Learn from a response of a method that the table has."""
        stats, share = observation.stats, 1.0 / observation.choices
        method = table.methods.index(stats.method)
        timing = step_timing(table, stats)
        if timing is not None:
            end = round(predict.batch_fullness(stats.mean_batch))
            if table.step_count[method].any():
                log_ratio = self._confirmed(timing.log_ratio, method, end, observation)
                timing = timing._replace(log_ratio=log_ratio)
            share *= min(1.0, (stats.target_steps - 1) / FULL_STEPS)
            alone = table.live.step_ratio
            ratios = np.log(np.stack([alone, alone * table.live.batch_ratio], axis=1))
            now = np.column_stack([ratios, table.live.context_slope])
            self.observe_steps(now, timing, stats.mean_batch, share)
        ratio = prefill_ratio(table, method, stats)
        if ratio is not None:
            usual = math.log(table.live.prefill_ratio[method])
            deviation = self._confirmed(math.log(ratio) - usual, method, ENDS, observation)
            self._prefill.add(method, (usual + deviation, 1.0), 1.0 / observation.choices)

    def _confirmed(
        self, deviation: float, method: int, column: int, observation: Observation
    ) -> float:
        """Return a deviation of a log time, limited to OUTLIER or to the one before it.

        A warm-up repeats what it measures, so its responses need no other. Choices of one prompt
        meet the same pause, so they do not confirm each other.
        """
        if observation.policy == WARM_UP:
            return deviation
        before = float(self._latest[method, column])
        if observation.choices == 1:
            self._latest[method, column] = deviation
        return min(max(deviation, min(before, -OUTLIER)), max(before, OUTLIER))

    def observe_steps(
        self, now: Floats, timing: StepTiming, batch: float, share: float = 1.0
    ) -> None:
        """Count a response decoded in a batch of this mean size as `share` of a response.

        now: log ratios and context slopes [m, ENDS + 1] that the predicted step time used. They
        move by the most likely change that explains the response, so a response that took as long
        as predicted changes nothing, whatever its batch.
        """
        full = predict.batch_fullness(batch)
        ends = np.asarray([1.0 - full, full, timing.beyond])
        slopes, shares = np.zeros((2, *now.shape))
        for method, (sequences, seconds) in timing.parts.items():
            slopes[method], shares[method] = seconds * ends, share * sequences * ends
        values = now + timing.log_ratio * self._gain(slopes.ravel(), share).reshape(now.shape)
        self._count(self._steps, values[:, :ENDS], shares[:, :ENDS])
        if timing.beyond:
            self._count(self._context, values[:, ENDS], np.minimum(1.0, shares[:, ENDS]))

    def _gain(self, slopes: Floats, share: float) -> Floats:
        """Return the change [m * (ENDS + 1)] of each log ratio per log ratio of a batch.

        slopes: how much each ratio changes the batch's. Ratios with more evidence change less (the
        covariance of recursive least squares). If most sequences belong to a method with evidence
        of its own, the batch's slowness is attributed to the others.
        """
        doubtful = self._doubt @ slopes
        explained = float(slopes @ doubtful)
        most = float(np.diagonal(self._doubt)[slopes != 0.0].max())
        gain = doubtful / (explained + LEAST_DOUBT * most * float(slopes @ slopes))
        self._doubt -= share * np.outer(doubtful, doubtful) / (explained + STEP_NOISE)
        self._doubt += (np.eye(len(slopes)) - self._doubt) * (1.0 - 0.5 ** (share / self._forget))
        return np.asarray(gain)

    def _count(self, sums: DecayingSums, values: Floats, shares: Floats) -> None:
        counted = np.stack([values.ravel(), np.ones(values.size)], axis=1)
        sums.add_each(counted, shares.ravel())

    def step_ratios(self) -> tuple[Floats, Floats]:
        """Return each method's ratio alone [m] and the further ratio in a full batch [m].

        A method that was never in a full batch is expected to slow down there as the others do.
        """
        alone = shared_and_own(*self._alone())
        full, weight = self._by_end()[:, :, 1]
        beyond = shared_and_own(full - (alone + self._before) * weight, weight)
        return np.exp(alone), np.exp(self._before + beyond)

    def context_slopes(self) -> Floats:
        """Return the growth [m] of each log step ratio with the log context beyond the grid."""
        slopes, weight = self._context.columns
        return np.asarray(slopes / (weight + evidence.STEP_PRIOR))

    def step_weight(self) -> Floats:
        """Return the responses behind each method's ratio alone [m]."""
        return self._alone()[1]

    def prefill_ratios(self) -> Floats:
        """Return each method's ratio of live to profiled prefill time [m]."""
        return np.asarray(np.exp(shared_and_own(*self._prefill.columns)))

    def state(self) -> dict[str, list[float]]:
        """Return all sums by name, as JSON values."""
        steps = self._steps.state() | self._context.state()
        return steps | self._prefill.state()

    def restore(self, state: Mapping[str, Any], kept: Mapping[int, int]) -> None:
        """Take the sums over from a state.

        kept: maps a method's index here to its index in the state.
        """
        ends = range(ENDS)
        rows = {ENDS * h + end: ENDS * t + end for h, t in kept.items() for end in ends}
        self._steps.restore(state, rows)
        self._context.restore(state, kept)
        self._prefill.restore(state, kept)

    def _alone(self) -> tuple[Floats, Floats]:
        """Return sums of log ratios alone and their responses [m].

        Answers from full batches add STEP_PRIOR answers at most.
        """
        (alone, full), (weight, many) = np.moveaxis(self._by_end(), 2, 1)
        lent = evidence.STEP_PRIOR / (many + evidence.STEP_PRIOR)
        usual = full - self._before * many
        return np.asarray(alone + lent * usual), np.asarray(weight + lent * many)

    def _by_end(self) -> Floats:
        """Return sums of log ratios and of responses [2, m, ENDS]."""
        return self._steps.columns.reshape(2, -1, ENDS)


def shared_and_own(log_ratios: Floats, weight: Floats) -> Floats:
    """Return the log ratio [m] of each method: the shared one plus its own, shrunk toward 0.

    log_ratios: sums [m] over answers. weight: answers [m]. A method without answers gets the
    shared ratio.
    """
    seen = log_ratios / np.maximum(weight, 1e-9)
    shared = evidence.shared_log_ratio(seen, weight)
    prior = evidence.STEP_SPREAD**2 / evidence.own_variance(seen, weight)
    return np.asarray(shared + (log_ratios - shared * weight) / (weight + prior))


def step_timing(table: RoutingTable, stats: DecodeStats) -> StepTiming | None:
    """Compare a response's decode steps with the prediction, without time spent on other prompts.

    Returns None when the response says nothing about step time. A batch of several methods is
    compared with the mean of their step times (`StepTimes.mixed`). Each method is charged by its
    share of that, so a few sequences do not take the blame for a batch that another method slows.
    """
    steps = stats.target_steps - 1
    seconds = stats.decode_seconds - stats.stalled_seconds
    batch = max(1.0, stats.mean_batch)
    by_method = stats.batch_by_method or {stats.method: batch}
    known = {name: m for m, name in enumerate(table.methods)}
    counts = {known[name]: count for name, count in by_method.items() if count and name in known}
    if steps < 1 or seconds <= 0.0 or not counts:
        return None
    times = predict.StepTimes(table, stats.context_length - stats.output_tokens / 2.0)
    whole, expected = sum(counts.values()), times.mixed(counts, batch)
    if expected <= 0.0:
        return None
    return StepTiming(
        math.log(seconds / steps / expected),
        {
            m: (count / whole, count * times.of(m, batch) / (whole * expected))
            for m, count in counts.items()
        },
        times.beyond,
    )


def prefill_ratio(table: RoutingTable, method: int, stats: DecodeStats) -> float | None:
    """Return a response's measured over profiled prefill time, or None when it cannot be compared.

    Only a response decoded alone counts: in a batch, prompts are read in turns with other
    sequences' steps. A response without a decode step does not say what its batch was.
    """
    read = stats.prompt_tokens - stats.cached_prompt_tokens
    alone = stats.target_steps > 1 and stats.mean_batch <= ALONE_BATCH
    if not alone or (stats.cached_prompt_tokens and read < LEAST_READ):
        return None
    seconds = stats.first_token_seconds - stats.queue_seconds
    measured = predict.measured_prefill(table, method, read)
    return seconds / measured if seconds > 0.0 and measured > 0.0 else None
