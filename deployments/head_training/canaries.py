"""Canaries are compared with the active heads in service, and promoted or rolled back."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from deployments.errors import Troubles
from deployments.head_training.versions import UnknownVersionError, VersionStore
from schemas import HeadPart, HeadsInForce, LoadReport

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
LEAST_ANSWERS = 30
"""Answers of each version below which nothing is decided."""
CLEAR, WORSE = 3.0, 1.64
"""Standard errors of a clear difference, since a head is looked at many times, and of a loss at the
last look, where one head in twenty that is as good as the other would be rolled back."""
MOST_ANSWERS = 1000
"""Answers of all methods after which a canary is decided. It has had a hundred of them if routing
always chooses methods that draft with it."""
REPLICAS = 200
"""Replicas whose last counts are remembered, those that reported last; more if more report."""

SUMS = ("answers", "steps", "tokens", "steps_squared", "tokens_squared", "steps_times_tokens")
"""Fields of HeadCounts in the order of `Sums`."""
Sums = NDArray[np.float64]
EVERY = "all", 0
"""Key of the responses of all methods, whose other sums are 0."""

Verdict = Literal["promote", "roll back"]


class Ledger:
    """Add up what replicas count since their start. What a replica counted stays when it ends."""

    def __init__(self) -> None:
        self._last: dict[str, dict[tuple[str, int], Sums]] = {}
        self._total: dict[tuple[str, int], Sums] = {}

    def add(self, reports: Sequence[LoadReport]) -> None:
        """Take the newest report of each replica."""
        for report in reports:
            before = self._last.pop(report.replica, {})
            now = {
                (one.part, one.version): np.array([getattr(one, name) for name in SUMS], float)
                for one in report.heads
            }
            now[EVERY] = np.array([report.answers, *[0.0] * (len(SUMS) - 1)])
            for key, sums in now.items():
                self._total[key] = self.of(*key) + sums - before.get(key, 0.0)
            self._last[report.replica] = now
        while len(self._last) > max(REPLICAS, len(reports)):
            del self._last[next(iter(self._last))]

    def of(self, part: str, version: int) -> Sums:
        """Return the sums of a version [6]."""
        return self._total.get((part, version), np.zeros(len(SUMS)))


@dataclass(frozen=True)
class Trial:
    """A canary and the active version, with what was counted before the canary was seen.

    answers: those of all methods before.
    """

    numbers: tuple[int, int]
    before: tuple[Sums, Sums]
    answers: float


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


def verdict(canary: Sums, active: Sums, *, overdue: bool) -> tuple[Verdict | None, str]:
    """Decide on a canary by its responses and those of the active version, and say why.

    The verdict is None while there is too little evidence. overdue: whether a canary that is not
    shown to be worse is promoted, since it was better on held-out responses.
    """
    if min(canary[0], active[0]) < LEAST_ANSWERS:
        why = f"it was better on held-out answers, and routing gave it only {canary[0]:.0f}"
        return ("promote" if overdue else None), why
    gain, error = compared(canary, active)
    low, high = (100.0 * np.expm1(gain + sign * WORSE * error) for sign in (-1.0, 1.0))
    why = f"{low:+.1f} to {high:+.1f}% tokens per step in {canary[0]:.0f} answers"
    if abs(gain) > (WORSE if overdue else CLEAR) * error:
        return ("promote" if gain > 0.0 else "roll back"), why
    return ("promote" if overdue else None), why


class CanaryJudge:
    """Promote canaries that draft better than the active version, and roll back others.

    A canary that replicas cannot load, or whose manifest is unreadable, is rolled back too. `step`
    has to be called often, always from the same thread. reports: the replicas' newest load reports.
    A comparison begins again if the process does. A decision is dropped if what is active has
    changed meanwhile, since operators decide too, and so does the actor of a service that this one
    replaces.

    in_force: the versions that served at the last look.
    """

    def __init__(self, versions: VersionStore, reports: Callable[[], Sequence[LoadReport]]) -> None:
        self.in_force: HeadsInForce | None = None
        self._versions, self._reports = versions, reports
        self._ledger = Ledger()
        self._trials: dict[HeadPart, Trial] = {}
        self._look = 0.0
        self._troubles = Troubles(logger, "canaries are not judged")

    def step(self) -> None:
        """Look at the responses and decide, as is due. Raises nothing."""
        now = time.monotonic()
        if now < self._look:
            return
        self._look = now + LOOK_SECONDS
        with self._troubles.logged():
            reports = self._reports()
            self._ledger.add(reports)
            refused = {n: why for r in reports for n, why in r.refused_heads.items()}
            self.in_force = heads = self._versions.in_force()
            self._trials = {p: trial for p, trial in self._trials.items() if p in heads.canaries}
            for part in heads.canaries:
                self._judge(part, heads, refused)

    def _judge(self, part: HeadPart, heads: HeadsInForce, refused: dict[int, str]) -> None:
        pair = heads.canaries[part].number, heads.number(part)
        canary, active = (self._ledger.of(part, number) for number in pair)
        answers = self._ledger.of(*EVERY)[0]
        trial = self._trials.get(part)
        if trial is None or trial.numbers != pair:
            self._trials[part] = Trial(pair, (canary, active), answers)
            return
        canary, active = canary - trial.before[0], active - trial.before[1]
        # In its turn a canary drafts for all requests of a vLLM engine: others follow.
        awaited = canary[0] >= LEAST_ANSWERS > active[0]
        overdue = bool(answers - trial.answers >= MOST_ANSWERS) and not awaited
        decided, why = verdict(canary, active, overdue=overdue)
        unused = canary[0] == 0 and active[0] >= LEAST_ANSWERS
        if problem := self._unreadable(pair[0]):
            decided, why = "roll back", problem
        elif pair[0] in refused and (unused or (overdue and canary[0] < LEAST_ANSWERS)):
            decided, why = "roll back", f"replicas cannot load it: {refused[pair[0]]}"
        elif overdue and unused:
            decided, why = "roll back", "no replica drafts with it"
        if decided == "promote":
            logger.info("canary %d of %s is promoted: %s", pair[0], part, why)
            self._versions.promote(pair[0], heads)
        elif decided == "roll back":
            logger.warning("canary %d of %s is rolled back: %s", pair[0], part, why)
            self._versions.roll_back(part, heads)

    def _unreadable(self, number: int) -> str | None:
        try:
            self._versions.get(number)
        except UnknownVersionError as error:
            return str(error)
        return None
