"""Canaries are compared with the heads in force in service, and promoted or rolled back."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from deployments.drafters.versions import VersionStore
from schemas import HeadPart, HeadsInForce, LoadReport

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
LEAST_ANSWERS = 30
"""Answers of each version below which nothing is decided."""
CLEAR = 3.0
"""Standard errors of a clear difference: a canary is looked at many times."""
MOST_ANSWERS = 300
"""Answers of a canary after which any gain is enough: it was better on held answers."""
WATCHED_ANSWERS, WORST = 50, 0.8
"""A promoted head is rolled back if in so many answers it has clearly less than this share of the
tokens per step that it had as a canary."""

SUMS = ("answers", "steps", "tokens", "steps_squared", "tokens_squared", "steps_times_tokens")
"""Fields of HeadCounts in the order of `Sums`."""
Sums = NDArray[np.float64]
Verdict = Literal["promote", "roll back"]


class Ledger:
    """Add up what replicas count since their start. What a replica counted stays when it ends."""

    def __init__(self) -> None:
        self._last: dict[str, Mapping[tuple[str, int], Sums]] = {}
        self._total: dict[tuple[str, int], Sums] = {}

    def add(self, reports: Iterable[LoadReport]) -> None:
        """Take the newest reports."""
        for report in reports:
            before = self._last.get(report.replica, {})
            now = {
                (one.part, one.version): np.array([getattr(one, name) for name in SUMS], float)
                for one in report.heads
            }
            for key, sums in now.items():
                self._total[key] = self.of(*key) + sums - before.get(key, 0.0)
            self._last[report.replica] = now

    def of(self, part: str, version: int) -> Sums:
        """Return the sums of a version [6]."""
        return self._total.get((part, version), np.zeros(len(SUMS)))


def compared(sums: Sums, other: Sums) -> tuple[float, float]:
    """Return the logarithm of the ratio of tokens per step, and its standard error.

    The error is that of a ratio of two sums over answers, by the delta method.
    """
    (rate, error), (other_rate, other_error) = _rate(sums), _rate(other)
    return float(np.log(rate / other_rate)), float(np.hypot(error, other_error))


def _rate(sums: Sums) -> tuple[float, float]:
    """Return the tokens per step and the standard error of their logarithm."""
    _, steps, tokens, steps_squared, tokens_squared, products = sums
    rate = tokens / steps
    spread = tokens_squared - 2.0 * rate * products + rate**2 * steps_squared
    return float(rate), float(np.sqrt(max(0.0, spread)) / tokens)


def verdict(canary: Sums, control: Sums) -> Verdict | None:
    """Decide on a canary, None while there is too little evidence."""
    if min(canary[0], control[0]) < LEAST_ANSWERS:
        return None
    gain, error = compared(canary, control)
    if abs(gain) < CLEAR * error and canary[0] < MOST_ANSWERS:
        return None
    return "promote" if gain > 0.0 else "roll back"


@dataclass(frozen=True)
class _Trial:
    """A canary and the version in force, with what was counted before the canary was seen."""

    numbers: tuple[int, int]
    before: tuple[Sums, Sums]


@dataclass
class _Watch:
    """A promoted version, what it did as a canary, and what was counted before this window."""

    number: int
    expected: Sums
    before: Sums


class CanaryJudge:
    """Promote canaries that draft better than the version in force, and roll back others.

    `step` has to be called often, always from the same thread. reports: the replicas' newest load
    reports. What was counted before a restart of the process is not used: it may be of other
    traffic. A decision is dropped if what is in force has changed meanwhile, since operators decide
    too, and so does the actor of a service that this one replaces.
    """

    def __init__(self, versions: VersionStore, reports: Callable[[], Iterable[LoadReport]]) -> None:
        self._versions, self._reports = versions, reports
        self._ledger = Ledger()
        self._trials: dict[HeadPart, _Trial] = {}
        self._watched: dict[HeadPart, _Watch] = {}
        self._look = 0.0
        self._problem: str | None = None

    def step(self) -> None:
        """Look at the answers and decide, as is due. Raises nothing."""
        now = time.monotonic()
        if now < self._look:
            return
        self._look = now + LOOK_SECONDS
        try:
            self._ledger.add(self._reports())
            self._decide()
        except Exception as error:  # the load board and the store have exceptions of their own
            problem = f"{error or type(error).__name__}"
            if problem != self._problem:
                logger.warning("canaries are not judged until this is fixed: %s", problem)
            self._problem = problem
        else:
            self._problem = None

    def _decide(self) -> None:
        heads = self._versions.in_force()
        for part in get_args(HeadPart):
            if part in heads.canaries:
                self._watched.pop(part, None)
                self._judge(part, heads)
            else:
                self._trials.pop(part, None)
                self._watch(part, heads)

    def _judge(self, part: HeadPart, heads: HeadsInForce) -> None:
        numbers = heads.canaries[part].number, heads.number(part)
        canary, control = (self._ledger.of(part, number) for number in numbers)
        trial = self._trials.get(part)
        if trial is None or trial.numbers != numbers:
            self._trials[part] = _Trial(numbers, (canary, control))
            return
        canary, control = canary - trial.before[0], control - trial.before[1]
        decided = verdict(canary, control)
        if decided is None:
            return
        gain, _ = compared(canary, control)
        logger.info(
            "canary %d of %s: %+.1f%% tokens per step in %d answers: %s",
            *(numbers[0], part, 100.0 * np.expm1(gain), canary[0], decided),
        )
        if decided == "promote":
            self._versions.promote(numbers[0], heads)
            self._watched[part] = _Watch(numbers[0], canary, self._ledger.of(part, numbers[0]))
        else:
            self._versions.roll_back(part, heads)

    def _watch(self, part: HeadPart, heads: HeadsInForce) -> None:
        """Roll a promoted version back if it drafts far worse than it did as a canary."""
        watch, number = self._watched.get(part), heads.number(part)
        if watch is None or watch.number != number:
            self._watched.pop(part, None)
            return
        now = self._ledger.of(part, number)
        window = now - watch.before
        if window[0] < WATCHED_ANSWERS:
            return
        gain, error = compared(window, watch.expected)
        watch.before = now
        if gain + CLEAR * error < np.log(WORST):
            logger.warning("version %d of %s drafts far worse than before", number, part)
            self._versions.roll_back(part, heads)
