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

from router import predict
from router.acceptance import OUTLIER, STEPS_OF_NOISE, UNKNOWN, WRONG, Floats
from schemas import DecodeStats, Observation, RoutingTable
from schemas.observation import WARM_UP

OWN = 0.06
"""Standard deviation of a method's own log ratio before any response, where it was profiled."""

WALK = 0.005
"""Standard deviation by which a ratio changes between two responses."""

NOISE = 0.1
"""Standard deviation of a response's log seconds per step, and of a prefill's."""


class Ratios:
    """Log ratios of live to profiled seconds of m methods: a shared one, and one of each method.

    measured: whether the profile has them. batched: whether each has a further part that grows with
    the batch. The state [n] is the shared ones, then all methods' own.
    """

    def __init__(self, methods: int, *, measured: bool = True, batched: bool = False) -> None:
        # A shared ratio that is far off is an outlier, and makes room for itself.
        own = OWN if measured else WRONG
        widths = [WRONG, *[own] * methods, *[UNKNOWN] * (1 + methods) * batched]
        self._parts, self._methods = 1 + batched, methods
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

        variance: of its noise. time: when the response began and ended. A pause of the machine
        makes all responses long that run at the time; if the machine has become slow, the next one
        is long too. So a slow outlier counts once one that began after its end is slow too. Nothing
        makes a response short by accident.
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
            noisy = noise * (1.0 + STEPS_OF_NOISE / (stats.target_steps - 1)) + beyond**2
            slopes = self.steps.slopes(shares, fullness)
            self.steps.observe(method, slopes, log_ratio, noisy, time)
        if (ratio := prefill_ratio(table, method, stats)) is not None:
            # In a batch it waits for a step of others, however long that takes.
            noisy = noise * max(1.0, stats.mean_batch) ** 2
            alone = self.prefills.slopes({method: 1.0})
            self.prefills.observe(method, alone, math.log(ratio), noisy, time)

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

    def state(self) -> list[Any]:
        """Return JSON values for `restore`."""
        return [[one.mean.tolist(), one.covariance.tolist()] for one in (self.steps, self.prefills)]

    def restore(self, state: list[Any]) -> None:
        """Continue from a state of the same methods."""
        for one, (mean, covariance) in zip((self.steps, self.prefills), state, strict=True):
            one.mean, one.covariance = np.asarray(mean), np.asarray(covariance)


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

    The profile times whole prompts, and reading a few tokens takes longer than its fit says. So
    where most of a prompt is cached, its time says nothing.
    """
    read = stats.prompt_tokens - stats.cached_prompt_tokens
    if read < stats.cached_prompt_tokens:
        return None
    seconds = stats.first_token_seconds - stats.queue_seconds
    measured = predict.measured_prefill(table, method, read)
    return seconds / measured if seconds > 0.0 and measured > 0.0 else None
