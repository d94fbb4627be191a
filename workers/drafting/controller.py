"""Chooses before every step how to draft, and learns the tokens per second that each way brings."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np

from workers.drafting.acceptance import Acceptance, Traffic
from workers.drafting.estimates import Estimates, FadingRatio
from workers.drafting.failures import Failures
from workers.drafting.learned_state import LearnedState
from workers.drafting.lookup.look_ups import NOTHING as NOT_FOUND
from workers.drafting.lookup.look_ups import Continuation, LookUps
from workers.drafting.step_costs import (
    BUCKETS,
    CATCH_UP,
    Finished,
    Floats,
    StepCosts,
    bucket_of,
    worthwhile,
)

LOOK_UPS, PREDICTION, NOBODY, GRAMMAR = "suffix", "prediction", "none", "grammar"
"""What all draft tokens of a step come from in its statistics, if not from a learned drafter. Only
vLLM's engine tells predictions from other look-ups."""

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
TRUSTED = 32.0
"""Tokens of a sequence after which an arm's realised speed counts as much as the expected one."""
SHORTEST, LONGEST = EVERY // 2, 8 * EVERY
"""Steps for which the arm "nothing" is chosen at first and at most. A learned drafter of a small
batch is idle for SHORTEST at most."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to draft. levels: of the draft of `drafter`, which is a chain or, as `tree`, ends where
    another level does not pay; 0 drafts with none. look_ups: whether texts are looked up."""

    drafter: str = ""
    levels: int = 0
    look_ups: bool = False
    tree: bool = False

    @property
    def whole(self) -> bool:
        """Whether a large batch verifies the whole drafts: rows of even length cost less attention
        than is won by leaving improbable tokens out."""
        return self.levels > 0 and not (self.tree or self.look_ups)


NOTHING, LOOK_UPS_ALONE, ALL = Arm(), Arm(look_ups=True), Arm("all")


def arms_of(drafter: Acceptance | None, *, look_ups: bool) -> list[Arm]:
    """Return all arms with a learned drafter or none."""
    arms = [NOTHING]
    if drafter is not None:
        arms += [Arm(drafter.name, depth) for depth in (1, 2, 3) if depth <= drafter.levels]
        arms.append(Arm(drafter.name, drafter.levels, tree=True))
    return [*arms, *(replace(one, look_ups=True) for one in arms if look_ups)]


class Place:
    """What is known of batches of a bucket, at temperature 0 or not.

    small: whether drafts are chosen in every step for every sequence. accepted: draft tokens of a
    sequence in a step with a learned draft. slower: seconds of such a step in plain ones. copied:
    looked-up tokens that a sequence may expect. idle: steps since a learned drafter drafted.
    decisions: made.
    """

    def __init__(self, estimates: Estimates, bucket: int, *, greedy: bool) -> None:
        self.bucket, self.greedy, self.small = bucket, greedy, bucket < BUCKETS[2]
        self.traffic: Traffic = greedy, self.small
        self.accepted = estimates.of("accepted", bucket, greedy)
        self.slower = estimates.of("slower", bucket, greedy)
        self.copied = estimates.of("copied", greedy, prior=COPIED)
        self.idle = self.decisions = 0
        self._estimates = estimates

    def realised(self, arm: Arm) -> FadingRatio:
        """Return an arm's realised tokens over those expected in the same seconds, both of a
        sequence."""
        name = "realised", self.bucket, self.greedy, *astuple(arm)
        return self._estimates.of(*name, weight=TRUSTED)

    def factor(self, arm: Arm) -> float:
        """Return the factor on what is expected of an arm. An arm that drafts begins with what all
        of them realised, so that one that was never tried does not seem the best for that."""
        usual = 1.0 if arm == NOTHING else self.realised(ALL).value
        return self.realised(arm).given(usual, TRUSTED)


@dataclass(frozen=True, slots=True)
class Batch:
    """The sequences that are chosen for.

    limits: draft tokens that each has room for. missing: tokens of each that a drafter must read
    first, None for one that it cannot draft for, or None in place of all. begin: makes a sequence
    known to the look-ups. predicted: sequences whose client predicted the response. greedy:
    whether all are at temperature 0. others: further sequences of the same step.
    """

    limits: Mapping[Hashable, int]
    missing: Callable[[str], Sequence[int | None] | None]
    begin: Callable[[Hashable], None] = lambda _: None
    predicted: Collection[Hashable] = ()
    greedy: bool = True
    others: int = 0

    @property
    def together(self) -> int:
        """The sequences of the step."""
        return len(self.limits) + self.others


@dataclass(slots=True)
class Decision:
    """The drafts of a step.

    arm: the chosen one. tokens, seconds: what step costs and acceptance predict for it. goodput:
    its tokens per second, corrected by what it realised. drafter: drafts up to `arm.levels` levels
    for the sequences `taken`; another level of a tree must bring a sequence `price` tokens. found:
    what was looked up for each sequence in `looked_up`. usual: tokens of a learned draft that a
    sequence of a small batch accepts. counts: whether the step's seconds count for the arm.
    """

    batch: Batch
    place: Place
    arm: Arm
    tokens: float
    seconds: float
    goodput: float
    drafter: Acceptance | None = None
    found: Sequence[Continuation] = ()
    looked_up: Collection[Hashable] = ()
    taken: Sequence[int] = ()
    price: float = 0.0
    usual: float = 0.0
    counts: bool = True


class Controller:
    """Draft as brought the batch the most tokens per second.

    In large batches an arm is chosen for several steps, by realised tokens per second. In small
    ones each step and sequence has looked-up tokens, a learned draft or neither, by the tokens that
    these are expected to bring and the tokens that their seconds are worth.

    drafters: the learned ones; of equals the last is preferred. look_ups: None looks nothing up.
    failures: of look-ups, which then leave the learned drafters alone. estimates: of all of them.
    """

    def __init__(
        self,
        drafters: Sequence[Acceptance],
        costs: StepCosts,
        look_ups: LookUps | None,
        failures: Failures,
        estimates: Estimates,
    ) -> None:
        self.costs, self.estimates = costs, estimates
        self.state: LearnedState | None = None
        self.look_ups, self._failures = look_ups, failures
        last_first = reversed(drafters)
        best_first = sorted(last_first, key=lambda one: -sum(one.path((True, False))))
        self.drafters = {one.name: one for one in best_first}
        self._places: dict[tuple[int, bool], Place] = {}
        self._ease: dict[Hashable, FadingRatio] = {}
        self._step: Decision | None = None
        self._at: Place | None = None
        self._arm, self._left, self._rest = NOTHING, 0, SHORTEST
        self._run, self._rival = FadingRatio(), 0.0

    def choose(self, batch: Batch) -> Decision:
        """Return the drafts of the next step."""
        key = bucket_of(batch.together), batch.greedy
        if key not in self._places:
            self._places[key] = Place(self.estimates, key[0], greedy=key[1])
        place = self._places[key]
        if self._at is place and self._arm == NOTHING and self._left > 0 and not batch.predicted:
            self._left -= 1
            return self._begin(place, NOTHING, batch, None)
        drafter, ready = self._ready(batch)
        if place.small:
            return self._of_each(place, batch, drafter, ready)
        return self._of_all(place, batch, drafter, ready)

    def granted(self, decision: Decision, probabilities: Sequence[Sequence[float]]) -> list[int]:
        """Return how many draft tokens of each sequence are worth verifying.

        probabilities: of each sequence's tokens, falling, each with all before it.
        """
        if decision.arm.whole and not decision.looked_up:
            return [len(one) for one in probabilities]
        return worthwhile(probabilities, self._prices(decision, sum(map(len, probabilities))))[0]

    def chains(self, decision: Decision) -> tuple[list[int], set[int]]:
        """Return how many tokens of each sequence's draft are worth verifying, and the sequences
        for which the drafter drafts, where a draft is a chain, either looked up or the drafter's,
        and the drafter says nothing of its tokens."""
        limits, levels = list(decision.batch.limits.items()), decision.arm.levels
        drafts: list[Sequence[float]] = [one.probabilities for one in decision.found]
        taken = set[int]()
        drafter, traffic = decision.drafter, decision.place.traffic
        for index in decision.taken if drafter else ():
            name, limit = limits[index]
            assert drafter is not None
            path = drafter.path(traffic, self._ease_of(name))[: min(limit, levels)]
            if sum(path) >= decision.found[index].expected:
                drafts[index] = path
                taken.add(index)
        for at in range(1, levels):
            if sum(sum(drafts[i][at : at + 1]) for i in taken) < decision.price * len(taken):
                drafts = [d[:at] if i in taken else d for i, d in enumerate(drafts)]
        lengths = self.granted(decision, drafts)
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
        step = self._step
        if step is None:
            return
        if self.look_ups is not None and sequence in step.looked_up:
            self.look_ups.learn(sequence, tokens, verified)
        if draft is not None and step.drafter is not None:
            step.drafter.saw(step.place.traffic, *draft)
            self._ease.setdefault(sequence, FadingRatio()).saw(len(tokens) - 1, step.usual)
            step.place.accepted.saw(len(tokens) - 1)

    def drafted(self, levels: int, seconds: float, missing: Sequence[int]) -> None:
        """Learn that the chosen drafter drafted so many levels, 0 if it failed, for sequences of
        which it missed so many tokens."""
        step = self._step
        if step is None or step.drafter is None:
            return
        step.counts = levels > 0 and max(missing, default=0) < CATCH_UP
        if step.counts:
            plain = float(self.costs.table(len(missing))[len(missing)])
            self._level(step.drafter, step.place).saw(seconds / (levels * plain))

    def finished(self, finished: Finished) -> None:
        """Learn from the step that was chosen for last."""
        if self.state is not None:
            self.state.store()
        bucket, step = bucket_of(finished.sequences), self._step
        seconds = self.costs.saw(bucket, finished)
        self._step = None
        if step is None or not step.counts or step.place.bucket != bucket:
            return
        expected = step.tokens / step.seconds * seconds / finished.sequences
        for arm in (step.arm, ALL) if step.arm != NOTHING else (NOTHING,):
            step.place.realised(arm).saw(finished.tokens / finished.sequences, expected)
        if step.drafter is not None:
            step.place.slower.saw(seconds / self.costs.seconds(bucket, finished.sequences))
        step.place.idle += 1
        if step.arm == self._arm:
            self._run.saw(finished.tokens, seconds)
            loses = self._run.observed < self._rival * self._run.expected
            self._left = 0 if loses and self._left <= EVERY - EVERY // 4 else self._left

    def remember(self, folder: Path, key: Mapping[str, str]) -> None:
        """Begin with half of what was learned before, and store what is learned. key: what it
        depends on; see learned_state.key_of."""
        levels = {name: one.levels for name, one in self.drafters.items()}
        drafts = f"{levels}, look-ups: {self.look_ups is not None}"
        self.state = LearnedState(folder, {**key, "drafts": drafts}, self.estimates)

    def forget(self, sequence: Hashable) -> None:
        """Forget a sequence, also what was looked up for it in this step."""
        self._ease.pop(sequence, None)
        if self._step is not None:
            self._step.looked_up = [one for one in self._step.looked_up if one != sequence]
        if self.look_ups is not None:
            self.look_ups.end(sequence)

    def _of_each(
        self, place: Place, batch: Batch, drafter: Acceptance | None, ready: Sequence[int]
    ) -> Decision:
        """Choose for each sequence of a small batch."""
        arm = LOOK_UPS_ALONE
        if drafter is not None:
            arm = Arm(drafter.name, drafter.levels, self.look_ups is not None, tree=True)
        step = self._begin(place, arm, batch, drafter)
        self._look_up(step, batch.limits)
        copies = [one.probabilities for one in step.found]
        lengths, gain = worthwhile(copies, self._prices(step, sum(map(len, copies))))
        if drafter is None:
            return step
        copied = [sum(one[:n]) for one, n in zip(copies, lengths, strict=True)]
        step.usual = place.accepted.given((step.tokens - batch.together) / len(batch.limits))
        mine = [step.usual * self._ease_of(name) for name in batch.limits]
        due = place.idle >= SHORTEST
        taken = [i for i in ready if due or 2.0 * mine[i] >= copied[i]]
        # a learned draft is merged with what was looked up
        both = [max(one + 0.5 * more, more) for one, more in zip(mine, copied, strict=True)]
        plain = self.costs.seconds(place.bucket, batch.together)
        price = step.goodput * plain * (place.slower.given(step.seconds / plain) - 1.0)
        if taken and (due or sum(both) - price > gain):
            place.idle = 0
            self._with_draft(step, drafter, taken)
        return step

    def _of_all(
        self, place: Place, batch: Batch, drafter: Acceptance | None, ready: Sequence[int]
    ) -> Decision:
        """Choose an arm for all sequences of a large batch, or keep the present one."""
        if self._at is not place or self._left <= 0:
            self._decide(place, batch, drafter)
        self._left -= 1
        step = self._begin(place, self._arm, batch, drafter)
        self._look_up(step, batch.limits if step.arm.look_ups else batch.predicted)
        if drafter is not None and drafter.name == step.arm.drafter:
            self._with_draft(step, drafter, ready)
            return step
        # an arm without its drafter says nothing of the arm
        step.arm, step.counts = Arm(look_ups=step.arm.look_ups), not step.arm.levels
        return step

    def _decide(self, place: Place, batch: Batch, drafter: Acceptance | None) -> None:
        """Choose the arm of the next steps: the best, or one that was tried little."""
        arms = arms_of(drafter, look_ups=self.look_ups is not None)
        found = {arm: self._begin(place, arm, batch, drafter).goodput for arm in arms}
        arm = best = max(arms, key=lambda one: found[one])
        place.decisions += 1
        if place.decisions % EXPLORE == 0:
            worth = [one for one in arms if one != best and found[one] > CLEARLY * found[best]]
            arm = min(worth, key=lambda one: place.realised(one).expected, default=best)
        again = self._at is place and self._arm == NOTHING
        self._rest = min(LONGEST, 2 * self._rest) if again else SHORTEST
        self._left = self._rest if arm == NOTHING else EVERY
        self._at, self._arm = place, arm
        self._run, self._rival = FadingRatio(), CLEARLY * found[best]

    def _begin(self, place: Place, arm: Arm, batch: Batch, drafter: Acceptance | None) -> Decision:
        """Begin a step with an arm."""
        path = drafter.path(place.traffic)[: arm.levels] if drafter and arm.levels else []
        # a learned draft has most of the tokens that are looked up
        copied = place.copied.value if arm == LOOK_UPS_ALONE else 0.0
        count, together, best = len(batch.limits), batch.together, (0.0, 1.0)
        drafting = len(path) * self._level_seconds(drafter, place, count) if drafter else 0.0
        for verified in range(len(path) if arm.whole else 0, len(path) + 1):
            tokens = together + count * (sum(path[:verified]) + copied)
            rows = together + int(count * (verified + 2.0 * copied))
            one = tokens, self.costs.seconds(place.bucket, rows) + drafting
            best = max(best, one, key=lambda both: both[0] / both[1])
        goodput = best[0] / best[1] * place.factor(arm)
        self._step = Decision(batch, place, arm, *best, goodput)
        return self._step

    def _with_draft(self, step: Decision, drafter: Acceptance, taken: Sequence[int]) -> None:
        """Let a decision have a learned draft for some sequences."""
        step.drafter, step.taken = drafter, taken
        if step.arm.tree:
            level = self._level_seconds(drafter, step.place, len(taken)) / len(taken)
            step.price = step.goodput * level + self._row_price(step)

    def _prices(self, step: Decision, most: int) -> Floats:
        """Return what 0, 1, ... at least `most` further rows cost in tokens."""
        first = step.batch.together
        table = self.costs.table(first + most)[first : first + most + 1]
        return np.asarray(step.goodput * self.costs.speed.value * (table - table[0]))

    def _row_price(self, step: Decision) -> float:
        """Return what a row costs in tokens, on average over four of each sequence."""
        rows = 4 * step.batch.together
        return float(self._prices(step, rows)[rows]) / rows

    def _level(self, drafter: Acceptance, place: Place) -> FadingRatio:
        """Return what a level of drafts costs, in plain steps by the table."""
        name = "level seconds", drafter.name, place.bucket
        return self.estimates.of(*name, prior=DRAFTING, weight=1.0)

    def _level_seconds(self, drafter: Acceptance, place: Place, sequences: int) -> float:
        return self._level(drafter, place).value * float(self.costs.table(sequences)[sequences])

    def _ease_of(self, sequence: Hashable) -> float:
        """Return a sequence's accepted over usual draft tokens."""
        return self._ease[sequence].value if sequence in self._ease else 1.0

    def _ready(self, batch: Batch) -> tuple[Acceptance | None, list[int]]:
        """Return the best drafter that can draft for a sequence, and for which it can."""
        for name, drafter in self.drafters.items():
            missing = batch.missing(name) or ()
            if ready := [index for index, unread in enumerate(missing) if unread is not None]:
                return drafter, ready
        return None, []

    def _look_up(self, step: Decision, wanted: Collection[Hashable]) -> None:
        """Look sequences up. A failure leaves the learned drafters alone."""
        found = dict.fromkeys(step.batch.limits, NOT_FOUND)
        step.found, price = [*found.values()], self._row_price(step)
        if self.look_ups is None or not wanted:
            return
        if self.drafters and self._failures.rests(LOOK_UPS):
            return
        try:
            self.look_ups.step()
            for name in wanted:
                step.batch.begin(name)
                found[name] = self.look_ups.look_up(name, step.batch.limits[name])
                step.place.copied.saw(sum(p for p in found[name].probabilities if p > price))
        except Exception as error:
            if not self.drafters:
                raise
            self._failures.failed(LOOK_UPS, error)
            return
        self._failures.drafted(LOOK_UPS)
        step.found, step.looked_up = [*found.values()], wanted
