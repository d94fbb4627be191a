"""How fast this machine runs each method now, compared with the profile.

The logarithm of a response's measured over its profiled seconds per step (or per prefill) is the
sum of a factor that all methods share, because the machine is another one or is busy, and one of
the method. Each of both has a part that grows with the batch. A Kalman filter estimates them: its
uncertainty grows only where responses arrive.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from router import predict
from schemas import DecodeStats, Observation, RoutingTable
from schemas.observation import WARM_UP

Floats = NDArray[np.float64]

SHARED, OWN = 0.7, 0.08
"""Standard deviations of the shared and of a method's own log ratio before any response. What is
far off is an outlier, and makes room for itself."""

UNMEASURED_SHARED, UNMEASURED_OWN = 3.0, 0.5
"""The same where the table has no measurements."""

FULL_SHARED, FULL_OWN = 0.3, 0.2
"""The same of the further ratios in a full batch."""

WALK = 0.005
"""Standard deviation by which a ratio changes between two responses."""

NOISE = 0.1
"""Standard deviation of a response's log seconds per step."""

SINGLE_STEP = 0.4
"""Standard deviation that a single step or a prefill in a batch adds."""

OUTLIER = 3.0
"""Standard deviations beyond which a response has to be confirmed by one that began after it had
ended. A pause of the machine makes all responses long that run at the time. If the machine has
become slow, the next one is long too. Nothing makes a response short by accident."""

LEAST_READ = 32
"""Tokens of a partly cached prompt that must be left to read for its prefill time to count. The
profile times whole prompts, and a forward pass over a few tokens takes longer than its fit says."""


class Ratios:
    """Log ratios of live to profiled seconds of m methods: a shared one, and one of each method.

    batched: whether each has a further part that grows with the batch. The state [n] is the shared
    ones, then all methods' own.
    """

    def __init__(self, methods: int, *, measured: bool = True, batched: bool = False) -> None:
        alone = (SHARED, OWN) if measured else (UNMEASURED_SHARED, UNMEASURED_OWN)
        each = [alone, (FULL_SHARED, FULL_OWN)][: 1 + batched]
        widths = [width for first, own in each for width in (first, *[own] * methods)]
        self._parts, self._methods = len(each), methods
        self._prior = np.asarray(widths) ** 2
        self.mean = np.zeros(len(widths))
        self.covariance = np.diag(self._prior)
        self._outliers: dict[int, float] = {}
        """When each method's first one of the present row of outliers ended."""

    def slopes(self, shares: Mapping[int, float], fullness: float = 0.0) -> Floats:
        """Return the slopes [n] of a batch's log ratio, from each method's share of its seconds."""
        own = np.zeros(self._methods)
        for method, share in shares.items():
            own[method] = share
        part = np.append(own.sum(), own)
        return np.concatenate([part, fullness * part][: self._parts])

    def observe(
        self, method: int, slopes: Floats, value: float, variance: float, time: Sequence[float]
    ) -> None:
        """Count a response's log ratio.

        variance: of its noise. time: when the response began and ended.
        """
        began, ended = time
        room = (slopes != 0.0) & (np.diagonal(self.covariance) < self._prior)
        self.covariance = self.covariance + np.diag(np.where(room, WALK**2, 0.0))
        error = value - float(slopes @ self.mean)
        spread = float(slopes @ self.covariance @ slopes) + variance
        if abs(error) > OUTLIER * math.sqrt(spread):
            before = self._outliers.setdefault(method, ended)
            if error > 0.0 and began < before:
                return
            # The method or the machine has changed: forget how certain both were.
            own = slopes**2 / float(slopes @ slopes)
            self.covariance = self.covariance + np.diag(own * error**2)
            spread = float(slopes @ self.covariance @ slopes) + variance
        else:
            self._outliers.pop(method, None)
        gain = self.covariance @ slopes / spread
        self.mean = self.mean + gain * error
        self.covariance = self.covariance - np.outer(gain, slopes @ self.covariance)

    def of(self, fullness: float = 0.0) -> tuple[Floats, Floats]:
        """Return each method's log ratio [m], and the standard deviation [m] of its difference
        from that of the method that is known best: what all share does not matter for a choice."""
        rows = np.stack([self.slopes({m: 1.0}, fullness) for m in range(self._methods)])
        known = np.einsum("mi,ij,mj->m", rows, self.covariance, rows).argmin()
        apart = rows - rows[known]
        variance = np.einsum("mi,ij,mj->m", apart, self.covariance, apart)
        return rows @ self.mean, np.sqrt(np.maximum(0.0, variance))

    def state(self) -> dict[str, Any]:
        """Return JSON values for `restore`."""
        return {"mean": self.mean.tolist(), "covariance": self.covariance.tolist()}

    def restore(self, state: Mapping[str, Any], kept: Mapping[int, int]) -> None:
        """Continue from a state. kept: maps a method's index here to its index in the state."""
        mean, covariance = np.asarray(state["mean"]), np.asarray(state["covariance"])
        there = len(mean) // self._parts
        pairs = [
            (part * (1 + self._methods) + here, part * there + old)
            for part in range(self._parts)
            for here, old in ((0, 0), *((h + 1, t + 1) for h, t in kept.items()))
        ]
        new, old = (np.asarray(column) for column in zip(*pairs, strict=True))
        self.mean[new] = mean[old]
        self.covariance[np.ix_(new, new)] = covariance[np.ix_(old, old)]


class MachineSpeed:
    """Ratios of live to profiled step and prefill seconds for a table's methods."""

    def __init__(self, table: RoutingTable) -> None:
        m, measured = len(table.methods), bool(table.step_count.any())
        self.steps = Ratios(m, measured=measured, batched=True)
        self.prefills = Ratios(m, measured=measured)

    def observe(self, table: RoutingTable, observation: Observation) -> None:
        """Learn from a response of a method that the table has."""
        stats = observation.stats
        method = table.methods.index(stats.method)
        warm = observation.policy == WARM_UP
        time = (math.inf if warm else observation.time - stats.total_seconds, observation.time)
        noise = NOISE**2 * observation.choices
        if (step := step_timing(table, stats)) is not None:
            log_ratio, shares, beyond = step
            fullness = predict.batch_fullness(stats.mean_batch)
            noisy = noise + SINGLE_STEP**2 / (stats.target_steps - 1) + beyond**2
            slopes = self.steps.slopes(shares, fullness)
            self.steps.observe(method, slopes, log_ratio, noisy, time)
        if (ratio := prefill_ratio(table, method, stats)) is not None:
            batch = SINGLE_STEP * math.log(max(1.0, stats.mean_batch))
            alone = self.prefills.slopes({method: 1.0})
            self.prefills.observe(method, alone, math.log(ratio), noise + batch**2, time)

    def live(self) -> dict[str, Floats]:
        """Return the arrays of `Live` that this estimates."""
        (alone, error), (full, _) = self.steps.of(0.0), self.steps.of(1.0)
        prefill, prefill_error = self.prefills.of()
        return {
            "step_ratio": np.exp(alone),
            "batch_ratio": np.exp(full - alone),
            "step_error": error,
            "prefill_ratio": np.exp(prefill),
            "prefill_error": prefill_error,
        }

    def state(self) -> dict[str, Any]:
        """Return JSON values for `restore`."""
        return {"steps": self.steps.state(), "prefills": self.prefills.state()}

    def restore(self, state: Mapping[str, Any], kept: Mapping[int, int]) -> None:
        """Continue from a state. kept: maps a method's index here to its index in the state."""
        self.steps.restore(state["steps"], kept)
        self.prefills.restore(state["prefills"], kept)


def step_timing(
    table: RoutingTable, stats: DecodeStats
) -> tuple[float, dict[int, float], float] | None:
    """Compare a response's decode steps with the profile, without time spent on other prompts.

    Return the log ratio, each method's share of the seconds (by index), and the logarithm of the
    context over the longest of the profile; None when the response says nothing about step time.
    """
    steps = stats.target_steps - 1
    seconds = stats.decode_seconds - stats.stalled_seconds
    batch = max(1.0, stats.mean_batch)
    by_method = stats.batch_by_method or {stats.method: batch}
    known = {name: m for m, name in enumerate(table.methods)}
    counts = {known[name]: count for name, count in by_method.items() if count and name in known}
    if steps < 1 or seconds <= 0.0 or not counts:
        return None
    fresh = table.with_live(step_ratio=np.ones(len(known)), batch_ratio=np.ones(len(known)))
    times = predict.StepTimes(fresh, stats.context_length - stats.output_tokens / 2.0)
    expected = times.mixed(counts, batch)
    if expected <= 0.0:
        return None
    whole = sum(counts.values())
    shares = {m: count * times.of(m, batch) / (whole * expected) for m, count in counts.items()}
    return math.log(seconds / steps / expected), shares, times.beyond


def prefill_ratio(table: RoutingTable, method: int, stats: DecodeStats) -> float | None:
    """Return a response's measured over profiled prefill time, or None when it cannot be compared.

    Where a prompt is partly cached, or the response was cut, its time says nothing.
    """
    read = stats.prompt_tokens - stats.cached_prompt_tokens
    if stats.cached_prompt_tokens and read < LEAST_READ:
        return None
    seconds = stats.first_token_seconds - stats.queue_seconds
    measured = predict.measured_prefill(table, method, read)
    return seconds / measured if seconds > 0.0 and measured > 0.0 else None
