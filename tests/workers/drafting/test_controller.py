"""Who drafts: what the controller makes of look-ups, expectations, costs and what was accepted."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from workers.drafting.controller import PLAIN_EVERY, Controller, Decision
from workers.drafting.expectation import Expectation
from workers.drafting.failures import Failures
from workers.drafting.lookup.look_ups import LookUps
from workers.drafting.lookup.past import PastAnswers
from workers.drafting.step_costs import Draft, StepCosts

ROOM = 8


class World:
    """Sequences whose steps take `seconds` by their rows, and drafts a fiftieth of a step."""

    def __init__(self, *levels: int, seconds: Any = np.ones_like, looks_up: bool = False) -> None:
        drafters = [Expectation(f"d{i}", one) for i, one in enumerate(levels)]
        look_ups = LookUps(least=0.02, past=PastAnswers()) if looks_up else None
        self.controller = Controller(drafters, StepCosts(), look_ups, Failures())
        self.seconds, self.unread = seconds, dict.fromkeys(self.controller.drafters, 0)
        for name in self.controller.drafters:
            for count in range(1, 5):
                self.controller.costs.saw_drafting(name, Draft(count, 1), 0.02)

    def choose(self, *sequences: Any) -> Decision:
        limits = dict.fromkeys(sequences, ROOM)
        return self.controller.choose(limits, self.missing(sequences), self.seconds)

    def missing(self, sequences: Sequence[Any]) -> Any:
        def of(name: str) -> list[int | None] | None:
            unread = self.unread[name]
            return None if unread is None else [unread] * len(sequences)

        return of

    def step(self, *sequences: Any, held: int = 0) -> Decision:
        """Choose, and have so many levels of every learned draft accepted."""
        decision = self.choose(*sequences)
        for index, sequence in enumerate(sequences):
            drafted = index in decision.taken
            tokens = [1] * (1 + held * drafted)
            draft = (decision.drafter, held, 3) if drafted else None
            self.controller.learn(sequence, tokens, 0, draft)
        return decision


def rows(each: float) -> Any:
    return lambda verified: 1.0 + each * (np.asarray(verified) - 1.0)


def test_a_drafter_whose_drafts_hold_is_chosen_and_one_whose_do_not_is_left() -> None:
    world = World(3, seconds=rows(0.1))
    for _ in range(60):
        last = world.step("a", held=3)
    assert (last.drafter, list(last.taken), last.lengths) == ("d0", [0], [3])
    asked = [world.step("a").drafter is not None for _ in range(600)]
    assert sum(asked[100:200]) < 20
    assert any(asked[200:]), "now and then it is tried again"


def test_the_better_of_two_drafters_is_chosen_for_a_text() -> None:
    world = World(3, 3)
    for _ in range(80):
        decision = world.choose("a")
        held = 3 if decision.drafter == "d1" else 0
        draft = decision.drafter and (decision.drafter, held, 3)
        world.controller.learn("a", [1] * (1 + held), 0, draft or None)
    assert decision.drafter == "d1"


def test_a_disabled_drafter_is_not_chosen_nor_one_for_a_sequence_it_cannot_draft_for() -> None:
    world = World(3)
    world.unread["d0"] = None
    assert world.step("a", held=3).drafter is None


def test_catching_up_costs() -> None:
    world = World(3, 3, seconds=rows(0.02))
    for _ in range(40):
        for name in ("d0", "d1"):
            world.controller.costs.saw_drafting(name, Draft(3, 1, 1, 4000), 2.0)
            world.controller.costs.saw_drafting(name, Draft(3, 1), 0.02)
    world.unread["d0"] = 4000
    assert world.step("a").drafter == "d1"


def test_look_ups_are_drafted_and_learned_from() -> None:
    world = World(looks_up=True)
    look_ups, text = world.controller.look_ups, [7, 8, 9, 10, 11, 12, 7, 8, 9]
    look_ups.begin("a", text, "", greedy=True)
    decision = world.choose("a")
    assert decision.drafter is None
    assert decision.found[0].tokens[:3] == (10, 11, 12)
    assert decision.lengths[0] >= 3
    world.controller.learn("a", [5], verified=3)
    assert look_ups.trust < 1.0
    world.controller.forget("a")
    assert not look_ups.bytes


def test_after_many_drafts_in_a_row_one_step_is_plain() -> None:
    world = World(3)
    plain = [
        step
        for step in range(1, 3 * (PLAIN_EVERY + 1) + 1)
        if world.step("a", held=3).drafter is None
    ]
    assert plain == [n * (PLAIN_EVERY + 1) for n in (1, 2, 3)]


def test_where_the_drafter_failed_nothing_is_held_against_it() -> None:
    world = World(3)
    assert world.choose("a").drafter == "d0"
    world.controller.undrafted()
    trust = world.controller.drafters["d0"].trust
    world.choose("a")
    assert world.controller.drafters["d0"].trust == trust
