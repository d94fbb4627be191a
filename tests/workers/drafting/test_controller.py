"""How is drafted: what the controller makes of look-ups, acceptance, costs and realised seconds."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from workers.drafting.acceptance import USUAL, Acceptance
from workers.drafting.controller import (
    EVERY,
    EXPLORE,
    LONGEST,
    NOTHING,
    Batch,
    Controller,
    Decision,
)
from workers.drafting.estimates import Estimates
from workers.drafting.failures import Failures
from workers.drafting.lookup.look_ups import LookUps
from workers.drafting.lookup.past import PastAnswers
from workers.drafting.step_costs import CATCH_UP, Finished, StepCosts, worthwhile

ROOM = 8


def rising(each: float) -> Callable[[float], float]:
    return lambda rows: 1.0 + each * (rows - 1.0)


CHEAP = rising(0.02)


class World:
    """Sequences whose steps take `seconds` by their rows, and a level of drafts `level` seconds."""

    def __init__(
        self, *levels: int, seconds: Any = CHEAP, level: float = 0.05, looks_up: bool = False
    ) -> None:
        costs = StepCosts()
        for rows in range(1, 200):
            costs.measured(rows, seconds(rows))
        self.estimates, usual = Estimates(), (USUAL, USUAL)
        drafters = [Acceptance(f"d{i}", one, usual, self.estimates) for i, one in enumerate(levels)]
        self.look_ups = LookUps(least=0.02, past=PastAnswers()) if looks_up else None
        self.controller = Controller(drafters, costs, self.look_ups, Failures(), self.estimates)
        self.seconds, self.level, self.unread = seconds, level, 0
        self.texts = dict[Any, list[int]]()
        self.absent = set[str]()

    def batch(self, sequences: Sequence[Any], **more: Any) -> Batch:
        def missing(name: str) -> list[int | None] | None:
            return None if name in self.absent else [self.unread] * len(sequences)

        def begin(name: Any) -> None:
            assert self.look_ups is not None
            self.look_ups.begin(name, self.texts.setdefault(name, []), "", greedy=True)

        return Batch(dict.fromkeys(sequences, ROOM), missing, begin, **more)

    def step(self, *sequences: Any, held: int = 0, slower: float = 0.0, **more: Any) -> Decision:
        """Choose, and have so many levels of every learned draft accepted. slower: seconds that a
        learned draft takes besides."""
        self.decision = decision = self.controller.choose(self.batch(sequences, **more))
        levels = decision.arm.levels if decision.drafter else 0
        if levels:
            seconds = levels * self.level + slower
            self.controller.drafted(levels, seconds, [self.unread] * len(decision.taken))
        lengths, drafting = [min(levels, 3)] * len(sequences), levels * self.level
        accepted = [min(held, n) for n in lengths]
        for name, n, more_tokens in zip(sequences, lengths, accepted, strict=True):
            tokens = [1] * (1 + more_tokens)
            self.controller.learn(name, tokens, 0, (more_tokens, n) if n else None)
        rows = len(sequences) + sum(lengths)
        emitted = len(sequences) + sum(accepted)
        drafting += slower if levels else 0.0
        seconds = self.seconds(rows) + drafting
        self.controller.finished(Finished(len(sequences), emitted, rows, seconds, drafting))
        return decision


MANY = "abcdefgh"


@pytest.mark.parametrize("sequences", ["a", MANY])
def test_a_drafter_whose_drafts_hold_drafts_and_one_whose_do_not_is_left(sequences: str) -> None:
    good, bad = World(3), World(3, seconds=rising(0.2))
    drafted = {good: 0, bad: 0}
    for world, held in ((good, 3), (bad, 0)):
        for _ in range(400):
            drafted[world] += world.step(*sequences, held=held).drafter is not None
    assert drafted[good] > 380
    assert drafted[bad] < 80
    if len(sequences) == 1:
        assert drafted[bad] > 0, "now and then it is tried again"


def test_what_an_arm_really_takes_decides_in_large_batches() -> None:
    """By the table and by what is accepted a learned draft pays; something else makes it slow."""
    world = World(3)
    used = [world.step(*MANY, held=3, slower=3.0).drafter for _ in range(600)]
    assert used[0] is not None
    assert used[-200:].count(None) > 150


def test_an_arm_is_kept_for_some_steps_and_a_new_bucket_begins_anew() -> None:
    world = World(3)
    world.step(*MANY, held=3)
    first = world.controller._arm
    assert [world.step(*MANY, held=3) and world.controller._arm for _ in range(10)] == [first] * 10
    place = world.controller._at
    world.step(*MANY[:4], held=3)
    assert world.controller._at is not place


def test_one_choice_in_many_tries_another_arm_and_leaves_one_that_loses_clearly() -> None:
    world = World(3)
    arms = []
    for _ in range(2 * EXPLORE * EVERY):
        world.step(*MANY, held=3)
        arms.append(world.controller._arm.levels)  # the chain of all levels is the tree here
    best = max(set(arms), key=arms.count)
    assert 0 < len(arms) - arms.count(best) < 0.15 * len(arms)


def test_nothing_lasts_longer_each_time_and_looks_nothing_up_but_predictions() -> None:
    world = World(3, seconds=lambda rows: float(rows), looks_up=True)
    looked_up = list[Any]()
    own = world.look_ups.look_up

    def look_up(name: Any, limit: int) -> Any:
        looked_up.append(name)
        return own(name, limit)

    world.look_ups.look_up = look_up  # type: ignore[method-assign,union-attr]
    for _ in range(300):
        world.step(*MANY)
    assert world.controller._arm == NOTHING
    assert world.controller._rest == LONGEST
    looked_up.clear()
    world.step(*MANY, predicted={"c"})
    assert looked_up == ["c"]


def test_the_other_drafter_drafts_where_the_best_is_disabled() -> None:
    world = World(3, 3)
    assert world.step("a", held=3).arm.drafter == "d1", "of equals the last"
    world.absent.add("d1")
    assert world.step("a", held=3).arm.drafter == "d0"


def test_of_several_drafters_the_better_by_its_prior_drafts() -> None:
    drafters = [Acceptance("good", 3, (0.9, 0.9)), Acceptance("bad", 3, (0.2, 0.2))]
    controller = Controller(drafters, StepCosts(), None, Failures(), Estimates())
    assert list(controller.drafters) == ["good", "bad"]


def test_neither_catching_up_nor_a_failure_counts_against_an_arm() -> None:
    world = World(3)
    world.unread = CATCH_UP
    world.step(*MANY, held=0, slower=100.0)
    assert not world.controller._run.expected
    world.controller.choose(world.batch(MANY))
    world.controller.drafted(0, 100.0, [0] * 8)
    world.controller.finished(Finished(8, 8, 8, 100.0, 100.0))
    assert not world.controller._run.expected


def test_look_ups_are_drafted_and_learned_from() -> None:
    world = World(looks_up=True)
    world.texts["a"] = [7, 8, 9, 10, 11, 12, 7, 8, 9]
    decision = world.controller.choose(world.batch("a"))
    assert decision.found[0].tokens[:3] == (10, 11, 12)
    assert world.controller.chains(decision)[0][0] >= 3
    world.controller.learn("a", [5], verified=3)
    assert world.look_ups.trust < 1.0
    world.controller.forget("a")
    assert not world.look_ups._texts


def test_long_sure_look_ups_are_taken_instead_of_a_learned_draft() -> None:
    world = World(3, looks_up=True)
    text = [*range(20, 60)]
    world.texts["a"] = [*text, *text[:30]]
    decision = world.controller.choose(world.batch("a"))
    assert decision.drafter is None
    assert world.controller.chains(decision) == ([ROOM], set())


def test_of_each_sequences_chain_as_much_is_verified_as_pays() -> None:
    world = World(3, seconds=rising(0.15))
    for _ in range(30):
        _, taken = world.controller.chains(world.controller.choose(world.batch("ab")))
        world.controller.learn("a", [1] * 4, 0, (3, 3) if 0 in taken else None)
        world.controller.learn("b", [1], 0, (0, 3) if 1 in taken else None)
    while not (decision := world.controller.choose(world.batch("ab"))).drafter:
        pass
    lengths, _ = world.controller.chains(decision)
    assert lengths[0] > lengths[1]


def test_a_cheaper_later_row_pays_for_those_before_it() -> None:
    prices = np.array([0.0, 0.9, 1.8, 1.0, 2.0])
    assert worthwhile([[0.8, 0.5], [0.7, 0.1]], prices) == ([2, 1], pytest.approx(1.0))
    assert worthwhile([[0.8]], np.array([0.0, 0.9])) == ([0], 0.0)
    assert worthwhile([[], []], np.zeros(1)) == ([0, 0], 0.0)


def test_an_exchanged_head_is_judged_anew() -> None:
    world = World(3)
    for _ in range(64):
        world.step(*MANY, held=3)
    [drafter], place = world.controller.drafters.values(), world.controller._at
    share, arm = drafter.shares(place.traffic)[0], place.realised(world.controller._arm)
    seen = arm.expected
    world.estimates.exchanged("d0")
    assert drafter.shares(place.traffic)[0] < share
    assert arm.expected == pytest.approx(0.5 * seen)
