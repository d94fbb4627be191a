"""Canaries are compared with the heads in force in service, and promoted or rolled back."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np

from deployments.drafters.evidence import (
    EVERY,
    EvidenceStore,
    Ledger,
    Numbers,
    Sums,
    Trial,
    Version,
    Watch,
    numbers,
)
from deployments.drafters.versions import UnknownVersionError, VersionStore
from schemas import HeadPart, HeadsInForce, LoadReport

logger = logging.getLogger(__name__)

LOOK_SECONDS, SAVE_SECONDS = 5.0, 60.0
LEAST_ANSWERS = 30
"""Answers of each version below which nothing is decided."""
CLEAR, WORSE = 3.0, 1.64
"""Standard errors of a clear difference, since a head is looked at many times, and of a loss at the
last look, where one head in twenty that is as good as the other would be rolled back."""
MOST_ANSWERS = 1000
"""Answers of all methods after which a canary is decided. It has had a hundred of them if routing
always chooses methods that draft with it."""
WINDOW = 300
"""Answers of a promoted head after which the next comparison begins at the latest, and those before
that it is compared with: a comparison may begin among good answers and end among bad ones."""
SPOILT = 0.3
"""Share of the draft tokens accepted per step before, below which a promoted head is spoilt. Of
prompts of another kind half as many may be accepted, and no more of the parent's."""

Verdict = Literal["promote", "roll back"]


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


def _spoilt(sums: Numbers) -> Sums:
    """Return the sums of answers with SPOILT times the draft tokens accepted in each step."""
    answers, steps, tokens, steps_squared, tokens_squared, products = sums
    rest = 1.0 - SPOILT
    return np.array(
        [
            *(answers, steps, rest * steps + SPOILT * tokens, steps_squared),
            rest**2 * steps_squared + 2.0 * rest * SPOILT * products + SPOILT**2 * tokens_squared,
            rest * steps_squared + SPOILT * products,
        ]
    )


def _watch_after(trial: Trial, part: HeadPart, ledger: Ledger) -> Watch:
    """Return the watch over a canary that is promoted."""
    now = [ledger.of(part, number) for number in trial.numbers]
    expected = np.sum(now, axis=0) - np.sum(trial.before, axis=0)
    return Watch(number=trial.numbers[0], expected=numbers(expected), before=numbers(now[0]))


def verdict(canary: Sums, control: Sums, *, overdue: bool) -> Verdict | None:
    """Decide on a head by its answers and those of another, None while there is too little
    evidence. overdue: whether a head that is not shown to be worse is promoted."""
    if not _too_few(canary, control):
        gain, error = compared(canary, control)
        if abs(gain) > (WORSE if overdue else CLEAR) * error:
            return "promote" if gain > 0.0 else "roll back"
    return "promote" if overdue else None


def _too_few(canary: Sums, control: Sums) -> bool:
    return bool(min(canary[0], control[0]) < LEAST_ANSWERS)


class CanaryJudge:
    """Promote canaries that draft better than the version in force, and roll back others.

    A canary that replicas cannot load, or whose manifest is unreadable, is rolled back too. After
    MOST_ANSWERS of all methods one that is not shown to be worse is promoted, since it was better
    on held answers, and no further round begins while there is a canary.

    `step` has to be called often, always from the same thread. reports: the replicas' newest load
    reports. The evidence is saved with the versions, so that another process goes on with it. A
    decision is dropped if what is in force has changed meanwhile, since operators decide too, and
    so does the actor of a service that this one replaces.

    in_force: the versions that served at the last look.
    """

    def __init__(self, versions: VersionStore, reports: Callable[[], Sequence[LoadReport]]) -> None:
        self.in_force: HeadsInForce | None = None
        self._versions, self._reports = versions, reports
        self._store = EvidenceStore(versions.uri)
        self._ledger: Ledger | None = None
        self._refused: dict[int, str] = {}
        self._trials: dict[HeadPart, Trial] = {}
        self._watched: dict[HeadPart, Watch] = {}
        self._saved: tuple[dict[HeadPart, Trial], dict[HeadPart, Watch]] = ({}, {})
        self._save = 0.0
        self._look = 0.0
        self._problem: str | None = None

    def step(self) -> None:
        """Look at the answers and decide, as is due. Raises nothing."""
        now = time.monotonic()
        if now < self._look:
            return
        self._look = now + LOOK_SECONDS
        try:
            ledger = self._ledger or self._restored()
            reports = self._reports()
            ledger.add(reports)
            self._refused = {n: why for r in reports for n, why in r.refused_heads.items()}
            self.in_force = self._versions.in_force()
            self._decide(ledger, self.in_force)
            self._keep(ledger, self.in_force)
        except Exception as error:  # the load board and the store have exceptions of their own
            problem = f"{error or type(error).__name__}"
            if problem != self._problem:
                logger.warning("canaries are not judged until this is fixed: %s", problem)
            self._problem = problem
        else:
            self._problem = None

    def _restored(self) -> Ledger:
        evidence = self._store.read()
        self._trials, self._watched = dict(evidence.trials), dict(evidence.watched)
        self._saved = dict(evidence.trials), dict(evidence.watched)
        self._ledger = Ledger(evidence)
        return self._ledger

    def _keep(self, ledger: Ledger, heads: HeadsInForce) -> None:
        """Save the evidence when a trial begins or ends, and now and then: replicas report all that
        they have counted, so that only ended ones need the latter."""
        present, now = (self._trials, self._watched), time.monotonic()
        if present == self._saved and (not any(present) or now < self._save):
            return
        versions: set[Version] = {EVERY}
        versions |= {(part, heads.number(part)) for part in present[0] | present[1]}
        versions |= {(part, number) for part, one in present[0].items() for number in one.numbers}
        versions |= {(part, one.number) for part, one in present[1].items()}
        self._store.save(
            ledger.evidence(versions).model_copy(
                update={"trials": self._trials, "watched": self._watched}
            )
        )
        self._saved = dict(self._trials), dict(self._watched)
        self._save = now + SAVE_SECONDS

    def _decide(self, ledger: Ledger, heads: HeadsInForce) -> None:
        for part in get_args(HeadPart):
            if part in heads.canaries:
                self._judge(part, ledger, heads)
            else:
                trial = self._trials.pop(part, None)
                if trial is not None and trial.numbers[0] == heads.number(part):
                    self._watched[part] = _watch_after(trial, part, ledger)  # promoted by hand
                self._watch(part, ledger, heads)

    def _judge(self, part: HeadPart, ledger: Ledger, heads: HeadsInForce) -> None:
        pair = heads.canaries[part].number, heads.number(part)
        canary, control = (ledger.of(part, number) for number in pair)
        trial = self._trials.get(part)
        if trial is None or trial.numbers != pair:
            before, answers = (numbers(canary), numbers(control)), ledger.of(*EVERY)[0]
            self._trials[part] = Trial(numbers=pair, before=before, answers=answers)
            return
        canary, control = canary - trial.before[0], control - trial.before[1]
        # In its turn a canary drafts for all requests of a vLLM engine: others follow.
        awaited = canary[0] >= LEAST_ANSWERS > control[0]
        overdue = bool(ledger.of(*EVERY)[0] - trial.answers >= MOST_ANSWERS) and not awaited
        decided, why = self._decided(pair[0], canary, control, overdue=overdue)
        if decided == "promote":
            logger.info("canary %d of %s is promoted: %s", pair[0], part, why)
            self._watched[part] = _watch_after(trial, part, ledger)
            self._keep(ledger, heads)  # first, since the store may promote it and fail to say so
            self._versions.promote(pair[0], heads)
        elif decided == "roll back":
            logger.warning("canary %d of %s is rolled back: %s", pair[0], part, why)
            self._versions.roll_back(part, heads)

    def _decided(
        self, number: int, canary: Sums, control: Sums, *, overdue: bool
    ) -> tuple[Verdict | None, str]:
        """Return the decision on a canary, None if it is too early, and the reason."""
        if problem := self._problem_of(number, canary, control, overdue=overdue):
            return "roll back", problem
        decided = verdict(canary, control, overdue=overdue)
        if _too_few(canary, control):
            few = f"it was better on held answers, and routing gave it only {canary[0]:.0f}"
            return decided, few
        gain, error = compared(canary, control)
        low, high = (100.0 * np.expm1(gain + sign * WORSE * error) for sign in (-1.0, 1.0))
        return decided, f"{low:+.1f} to {high:+.1f}% tokens per step in {canary[0]:.0f} answers"

    def _problem_of(self, number: int, canary: Sums, control: Sums, *, overdue: bool) -> str | None:
        """Return why a canary cannot serve, None if it can or may still be loading."""
        try:
            self._versions.get(number)
        except UnknownVersionError as error:
            return str(error)
        unused = canary[0] == 0 and control[0] >= LEAST_ANSWERS
        why = self._refused.get(number)
        if why is not None and (unused or (overdue and _too_few(canary, control))):
            return f"replicas cannot load it: {why}"
        return "no replica drafts with it" if overdue and unused else None

    def _watch(self, part: HeadPart, ledger: Ledger, heads: HeadsInForce) -> None:
        """Roll a promoted version back if it drafts hardly anything, compared with the answers
        before, at first those of the trial."""
        watch, number = self._watched.get(part), heads.number(part)
        if watch is None or watch.number != number:
            self._watched.pop(part, None)
            return
        now = ledger.of(part, number)
        since = now - watch.before
        decided = verdict(since, _spoilt(watch.expected), overdue=bool(since[0] >= WINDOW))
        if decided == "promote":
            known = since + watch.expected
            expected = numbers(known * min(1.0, WINDOW / known[0]))
            self._watched[part] = Watch(number=number, expected=expected, before=numbers(now))
        elif decided == "roll back":
            self._versions.roll_back(part, heads)
            logger.warning("version %d of %s drafts hardly anything any more", number, part)
