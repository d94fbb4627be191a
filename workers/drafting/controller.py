"""Chooses before every step how to draft, and learns the tokens per second that each way brings."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workers.drafting.acceptance import Acceptance
from workers.drafting.arms import (
    LOOK_UPS_ALONE,
    NOTHING,
    Arm,
    Place,
    Realised,
    arms_of,
    bucket_of,
    worthwhile,
)
from workers.drafting.fading import EXCHANGED, FadingRatio
from workers.drafting.failures import Failures
from workers.drafting.lookup.look_ups import NOTHING as NOT_FOUND
from workers.drafting.lookup.look_ups import Continuation, LookUps
from workers.drafting.step_costs import CATCH_UP, Finished, Floats, StepCosts

LOOK_UPS = "suffix"
"""All draft tokens were looked up."""
PREDICTION = "prediction"
"""All draft tokens were those that the client predicted, in a vLLM engine."""
NOBODY = "none"
"""No tokens were drafted."""
GRAMMAR = "grammar"
"""The request's grammar forced all draft tokens."""

EVERY = 16
"""Steps of a large batch for which an arm is chosen."""
EXPLORE = 32
"""One of so many choices tries the arm that was tried least."""
CLEARLY = 0.85
"""Share of the best arm's tokens per second below which another is not tried, or tried no
longer."""
DRAFTING = 0.1
"""Seconds of a level of a learned draft, in plain steps, before any is measured."""
COPIED = 0.2
"""Looked-up tokens per step and sequence that are accepted, before anything is looked up."""

Missing = Callable[[str], Sequence[int | None] | None]
"""Tokens of each sequence that a drafter must read before it drafts: None for a sequence that it
cannot draft for, or in place of all where it is disabled."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The sequences that are chosen for.

    limits: draft tokens that each has room for. begin: makes a sequence known to the look-ups.
    predicted: sequences whose client predicted the response. greedy: whether all are at
    temperature 0. others: further sequences of the same step.
    """

    limits: Mapping[Hashable, int]
    missing: Missing
    begin: Callable[[Hashable], None] = lambda _: None
    predicted: Collection[Hashable] = ()
    greedy: bool = True
    others: int = 0

    @property
    def together(self) -> int:
        """The sequences of the step."""
        return len(self.limits) + self.others


@dataclass(frozen=True, slots=True)
class Decision:
    """The drafts of a step.

    found: what was looked up for each sequence. lengths: tokens of it that are worth verifying
    where no drafter drafts. drafter: drafts up to `levels` levels for the sequences `taken`.
    price: tokens that another level of a tree must bring to a sequence; None drafts a chain of all
    levels. shares: how often each level is accepted where the one above is.
    """

    found: Sequence[Continuation]
    lengths: Sequence[int]
    taken: Sequence[int] = ()
    drafter: str | None = None
    levels: int = 0
    price: float | None = None
    shares: Sequence[float] = ()


@dataclass(slots=True)
class _Chosen:
    """The arm of the present step, and the acceptance of its drafter.

    goodput: expected tokens per second. usual: tokens of a learned draft that a sequence of a small
    batch accepts. looked_up: sequences that were. counts: whether the arm is to blame for the
    step's seconds.
    """

    place: Place
    arm: Arm
    goodput: float
    batch: Batch
    drafter: Acceptance | None = None
    looked_up: Collection[Hashable] = ()
    usual: float = 0.0
    counts: bool = True


class Controller:
    """Draft as brought the batch the most tokens per second.

    In large batches an arm is chosen for several steps, by realised tokens per second. In small
    ones each step and sequence has looked-up tokens, a learned draft or neither, by the tokens that
    these are expected to bring and the tokens that their seconds are worth.

    drafters: the learned ones; of equals the last is preferred. look_ups: None looks nothing up.
    failures: of look-ups, which then leave the learned drafters alone.
    """

    def __init__(
        self,
        drafters: Sequence[Acceptance],
        costs: StepCosts,
        look_ups: LookUps | None,
        failures: Failures,
    ) -> None:
        self.costs, self.look_ups, self._failures = costs, look_ups, failures
        last_first = reversed(drafters)
        best_first = sorted(last_first, key=lambda one: -sum(one.path((True, False))))
        self.drafters = {one.name: one for one in best_first}
        self._places: dict[tuple[int, bool], Place] = {}
        self._drafting: dict[tuple[str, int], FadingRatio] = {}
        self._copied = {greedy: FadingRatio(COPIED) for greedy in (False, True)}
        self._ease: dict[Hashable, FadingRatio] = {}
        self._chosen: _Chosen | None = None
        self._arm, self._left, self._rest, self._expected = NOTHING, 0, EVERY // 2, 1.0
        self._at: Place | None = None
        self._run, self._rival = Realised(), 0.0

    def choose(self, batch: Batch) -> Decision:
        """Return the drafts of the next step."""
        key = bucket_of(batch.together), batch.greedy
        place = self._places.setdefault(key, Place(*key))
        if place.small:
            return self._of_each(place, batch)
        return self._of_all(place, batch)

    def granted(self, probabilities: Sequence[Sequence[float]]) -> list[int]:
        """Return how many draft tokens of each sequence are worth verifying in this step.

        probabilities: of each sequence's tokens, falling, each with all before it.
        """
        assert self._chosen is not None
        chosen = self._chosen
        if chosen.arm.whole and not chosen.place.small and not chosen.looked_up:
            return [len(one) for one in probabilities]
        return worthwhile(probabilities, self._prices(sum(map(len, probabilities))))[0]

    def chains(self, decision: Decision) -> tuple[list[int], set[int]]:
        """Return how many tokens of each sequence's draft are worth verifying, and the sequences
        for which the drafter drafts, where a draft is a chain, either looked up or the drafter's,
        and the drafter says nothing of its tokens."""
        chosen = self._chosen
        assert chosen is not None
        assert chosen.drafter is not None
        drafter, traffic = chosen.drafter, chosen.place.traffic
        limits = list(chosen.batch.limits.items())
        drafts = [one.probabilities for one in decision.found]
        taken = set[int]()
        for index in decision.taken:
            name, limit = limits[index]
            path = drafter.path(traffic, self._ease_of(name))[: min(limit, decision.levels)]
            if sum(path) >= decision.found[index].expected:
                drafts[index] = tuple(path)
                taken.add(index)
        if chosen.arm.tree and taken:
            level = chosen.goodput * self._level_seconds(drafter, chosen.place, len(taken))
            for at in range(1, decision.levels):
                if sum(drafts[i][at] for i in taken if len(drafts[i]) > at) < level:
                    drafts = [d[:at] if i in taken else d for i, d in enumerate(drafts)]
        lengths = self.granted(drafts)
        return lengths, {index for index in taken if lengths[index]}

    def learn(
        self,
        sequence: Hashable,
        tokens: Sequence[int],
        verified: int = 0,
        draft: tuple[int, int] | None = None,
    ) -> None:
        """Learn from a sequence's step.

        tokens: emitted ones, all but the last accepted drafts. verified: how many looked-up tokens
        were verified, where no other drafter's were. draft: how many levels of the learned draft
        were accepted, and of how many the target's choice is known.
        """
        chosen = self._chosen
        if chosen is None:
            return
        if self.look_ups is not None and sequence in chosen.looked_up:
            self.look_ups.learn(sequence, tokens, verified)
        if draft is not None and chosen.drafter is not None:
            chosen.drafter.saw(chosen.place.traffic, *draft)
            mine = self._ease.setdefault(sequence, FadingRatio(memory=40.0))
            mine.saw(len(tokens) - 1, chosen.usual)
            chosen.place.of(chosen.arm).accepted.saw(len(tokens) - 1)

    def drafted(self, levels: int, seconds: float, missing: Sequence[int]) -> None:
        """Learn that the chosen drafter drafted so many levels, 0 if it failed, for sequences of
        which it missed so many tokens."""
        chosen = self._chosen
        if chosen is None or chosen.drafter is None:
            return
        late = max(missing, default=0) >= CATCH_UP
        if late or not levels:
            chosen.counts = False
        else:
            plain = float(self.costs.table(len(missing))[len(missing)])
            self._of_level(chosen.drafter, chosen.place).saw(seconds / (levels * plain))

    def finished(self, step: Finished) -> None:
        """Learn from the step that was chosen for last."""
        bucket = bucket_of(step.sequences)
        self.costs.saw(bucket, step.rows, step.seconds - step.drafting)
        chosen, self._chosen = self._chosen, None
        if chosen is None or not chosen.counts or chosen.place.bucket != bucket:
            return
        table = self.costs.table(step.sequences)
        chosen.place.saw(chosen.arm, step, table)
        plain = self.costs.speed(bucket) * float(table[step.sequences])
        chosen.place.of(chosen.arm).slower.saw(step.seconds / plain)
        if chosen.arm != self._arm:
            return
        self._run.saw(step.tokens * float(table[step.sequences]) / step.sequences, step.seconds)
        if self._run.steps >= EVERY // 4 and self._run.plain < self._rival * self._run.seconds:
            self._left = 0

    def exchanged(self, drafter: str) -> None:
        """Forget most of what was learned of a drafter, whose head is another one now."""
        self.drafters[drafter].discount()
        for place in self._places.values():
            for arm, realised in place.arms.items():
                if arm.levels:
                    realised.fade(EXCHANGED)

    def forget(self, sequence: Hashable) -> None:
        """Forget a sequence, also what was looked up for it in this step."""
        self._ease.pop(sequence, None)
        if self._chosen is not None:
            looked_up = self._chosen.looked_up
            self._chosen.looked_up = [other for other in looked_up if other != sequence]
        if self.look_ups is not None:
            self.look_ups.end(sequence)

    def _of_each(self, place: Place, batch: Batch) -> Decision:
        """Choose for each sequence of a small batch."""
        drafter, missing = self._ready(batch)
        levels = drafter.levels if drafter else 0
        learned = Arm(levels, look_ups=self.look_ups is not None, tree=True)
        prior = self._prior(place, learned, batch, drafter)
        chosen = self._begin(place, learned, batch, drafter, place.realised.speedup(*prior))
        found = self._look_up(batch, batch.limits)
        prices = self._prices(sum(len(one.tokens) for one in found))
        lengths, looked_up = worthwhile([one.probabilities for one in found], prices)
        if drafter is not None:
            copied = [sum(f.probabilities[:n]) for f, n in zip(found, lengths, strict=True)]
            extra, chosen.usual = self._learned_step(chosen, prior)
            mine = [chosen.usual * self._ease_of(name) for name in batch.limits]
            due = place.steps - place.drafted >= EVERY // 2
            can = [i for i, unread in enumerate(missing) if unread is not None]
            taken = [i for i in can if due or 2.0 * mine[i] >= copied[i]]
            both = [one + 0.5 * more for one, more in zip(mine, copied, strict=True)]
            gained = sum(map(max, both, copied)) - chosen.goodput * extra
            if taken and (due or gained > looked_up):
                place.drafted = place.steps
                return self._learned(chosen, found, taken)
        chosen.arm = LOOK_UPS_ALONE if any(lengths) else NOTHING
        chosen.drafter = None
        return Decision(found, lengths)

    def _of_all(self, place: Place, batch: Batch) -> Decision:
        """Choose an arm for all sequences of a large batch."""
        if self._at is not place or self._left <= 0:
            ready, _ = self._ready(batch)
            levels = ready.levels if ready else 0
            arms = arms_of(levels, look_ups=self.look_ups is not None)
            self._decide(place, batch, ready, arms)
        self._left -= 1
        drafter, missing = self._ready(batch) if self._arm.levels else (None, ())
        arm = self._arm if drafter else replace(self._arm, levels=0, tree=False)
        chosen = self._begin(place, arm, batch, drafter, self._expected)
        found = self._look_up(batch, batch.limits if arm.look_ups else batch.predicted)
        if drafter is None:
            looked_up = any(one.tokens for one in found)
            probabilities = [one.probabilities for one in found]
            return Decision(found, self.granted(probabilities) if looked_up else [0] * len(found))
        return self._learned(chosen, found, [i for i, n in enumerate(missing) if n is not None])

    def _learned(
        self, chosen: _Chosen, found: Sequence[Continuation], taken: Sequence[int]
    ) -> Decision:
        """Return the decision for a learned draft."""
        assert chosen.drafter is not None
        price = None
        if chosen.arm.tree:
            rows = 4 * chosen.batch.together
            row = float(self._prices(rows)[rows]) / rows
            price = (
                chosen.goodput
                * self._level_seconds(chosen.drafter, chosen.place, len(taken))
                / len(taken)
                + row
            )
        name, levels = chosen.drafter.name, chosen.arm.levels
        shares = chosen.drafter.shares(chosen.place.traffic)
        return Decision(found, [0] * len(found), taken, name, levels, price, shares)

    def _decide(
        self, place: Place, batch: Batch, drafter: Acceptance | None, arms: Sequence[Arm]
    ) -> None:
        """Choose the arm of the next steps: the best, or one that was tried little."""
        found = {arm: self._speedup(place, arm, batch, drafter) for arm in arms}
        best = max(arms, key=lambda arm: found[arm])
        place.decisions += 1
        arm = best
        if place.decisions % EXPLORE == 0:
            worth = [one for one in arms if one != best and found[one] > CLEARLY * found[best]]
            arm = min(worth, key=lambda one: place.of(one).steps, default=best)
        self._rival = CLEARLY * found[best]
        again = self._at is place and self._arm is NOTHING
        self._rest = min(8 * EVERY, 2 * self._rest) if again else EVERY // 2
        self._at, self._arm, self._run, self._expected = place, arm, Realised(), found[arm]
        self._left = self._rest if arm is NOTHING else EVERY

    def _begin(
        self, place: Place, arm: Arm, batch: Batch, drafter: Acceptance | None, speedup: float
    ) -> _Chosen:
        plain = float(self.costs.table(batch.together)[batch.together])
        self._chosen = _Chosen(place, arm, speedup * batch.together / plain, batch, drafter)
        return self._chosen

    def _speedup(self, place: Place, arm: Arm, batch: Batch, drafter: Acceptance | None) -> float:
        """Return an arm's speedup over plain decoding by the table, as realised so far."""
        return place.of(arm).speedup(*self._prior(place, arm, batch, drafter))

    def _prior(
        self, place: Place, arm: Arm, batch: Batch, drafter: Acceptance | None
    ) -> tuple[float, float]:
        """Return the speedup and the seconds of an arm's steps by the table of step costs and what
        is accepted of drafts."""
        path = drafter.path(place.traffic)[: arm.levels] if drafter and arm.levels else []
        # a learned draft has most of the tokens that are looked up
        copied = self._copied[place.greedy].value if arm == LOOK_UPS_ALONE else 0.0
        count, together = len(batch.limits), batch.together
        table = self.costs.table(together + int(count * (len(path) + 2.0 * copied)))
        speed, best = self.costs.speed(place.bucket), (0.0, 1.0)
        plain = float(table[together])
        drafting = len(path) * self._level_seconds(drafter, place, count) if drafter else 0.0
        for verified in range(len(path) if arm.whole else 0, len(path) + 1):
            tokens = together + count * (sum(path[:verified]) + copied)
            rows = together + int(count * (verified + 1.6 * copied))
            seconds = speed * float(table[rows]) + drafting
            best = max(best, (tokens * plain / together / seconds, seconds))
        return best

    def _prices(self, most: int) -> Floats:
        """Return what 0, 1, ... at least `most` further rows cost in tokens."""
        chosen = self._chosen
        assert chosen is not None
        first = chosen.batch.together
        table = self.costs.table(first + most)[first : first + most + 1]
        price = chosen.goodput * self.costs.speed(chosen.place.bucket)
        return np.asarray(price * (table - table[0]))

    def _learned_step(self, chosen: _Chosen, prior: tuple[float, float]) -> tuple[float, float]:
        """Return the seconds of a learned step beyond those of a plain one, and the draft tokens
        that a sequence usually accepts in it. prior: see _prior."""
        batch, realised = chosen.batch, chosen.place.of(chosen.arm)
        table = float(self.costs.table(batch.together)[batch.together])
        plain, (speedup, seconds) = self.costs.speed(chosen.place.bucket) * table, prior
        accepted = batch.together * (speedup * seconds / table - 1.0) / len(batch.limits)
        extra = plain * (realised.slower.given(seconds / plain) - 1.0)
        return extra, realised.accepted.given(accepted)

    def _of_level(self, drafter: Acceptance, place: Place) -> FadingRatio:
        """Return what a level of drafts costs, in plain steps by the table."""
        key = drafter.name, place.bucket
        return self._drafting.setdefault(key, FadingRatio(DRAFTING, weight=1.0))

    def _level_seconds(self, drafter: Acceptance, place: Place, sequences: int) -> float:
        return self._of_level(drafter, place).value * float(self.costs.table(sequences)[sequences])

    def _ease_of(self, sequence: Hashable) -> float:
        """Return a sequence's accepted over usual draft tokens."""
        return self._ease[sequence].value if sequence in self._ease else 1.0

    def _ready(self, batch: Batch) -> tuple[Acceptance | None, Sequence[int | None]]:
        """Return the best drafter that can draft for a sequence, and the tokens that it misses of
        each."""
        for name, drafter in self.drafters.items():
            missing = batch.missing(name)
            if missing is not None and any(one is not None for one in missing):
                return drafter, missing
        return None, ()

    def _look_up(self, batch: Batch, wanted: Collection[Hashable]) -> list[Continuation]:
        found = dict.fromkeys(batch.limits, NOT_FOUND)
        assert self._chosen is not None
        self._chosen.looked_up = wanted
        if self.look_ups is None or not wanted:
            return list(found.values())
        if self.drafters and self._failures.rests(LOOK_UPS):
            self._chosen.looked_up = ()
            return list(found.values())
        copied = self._copied[batch.greedy]
        try:
            self.look_ups.step()
            for name in wanted:
                batch.begin(name)
                found[name] = self.look_ups.look_up(name, batch.limits[name])
                copied.saw(found[name].expected)
        except Exception as error:
            if not self.drafters:
                raise
            self._failures.failed(LOOK_UPS, error)
            self._chosen.looked_up = ()
            return [NOT_FOUND] * len(found)
        self._failures.drafted(LOOK_UPS)
        return list(found.values())
