"""Whom the adaptive method of a shared vLLM engine lets draft. A step is a stand-in for vLLM's."""

from types import SimpleNamespace
from typing import Any

from workers.vllm_engine.drafting.adaptive import Adaptive, Learned, Options

EAGLE = Learned("vllm_eagle3", "eagle3", 4)
MEDUSA = Learned("vllm_medusa", "medusa", 3)
ROOM = 8


class World:
    """Sequences of one engine whose steps take as long as `seconds` says of their rows."""

    def __init__(self, *learned: Learned, seconds=lambda _rows: 1.0, **options: Any) -> None:
        self.now, self.seconds = 0.0, seconds
        self.texts: dict[str, list[int]] = {}
        self.drafted: dict[str, int] = {}
        self.ended: set[str] = set()
        self.adaptive = Adaptive(Options(learned, **options), {"eagle3"}, clock=lambda: self.now)

    def step(self, came: dict[str, list[int]], rows: list[int] | None = None, limit: int = ROOM):
        """These tokens have come; who is chosen now. Nothing has ended by itself."""
        names = list(came)
        scheduled = {name: self.drafted.get(name, 0) + 1 for name in names}
        for name, tokens in came.items():
            self.texts.setdefault(name, [1, 2, 3]).extend(tokens)
        step: Any = SimpleNamespace(
            runner=SimpleNamespace(input_batch=SimpleNamespace(req_ids=names)),
            scheduled=SimpleNamespace(finished_req_ids=self.ended, num_scheduled_tokens=scheduled),
            sampled=list(came.values()),
            drafted=lambda: [self.drafted.get(name, 0) for name in names],
            length=lambda row: len(self.texts[names[row]]),
            tokens=lambda row, since: self.texts[names[row]][since:],
            prompt_tokens=lambda _row: 3,
            greedy=lambda _row: True,
            asked=lambda row: (names[row].split("/")[0], {}),
        )
        self.now += self.seconds(sum(scheduled.values()))
        chosen = range(len(names)) if rows is None else rows
        choice = self.adaptive.choose(step, list(chosen), [limit] * len(names))
        self.adaptive.ended(step)
        self.ended = set()
        for row, name in enumerate(names):
            self.drafted[name] = (
                choice.tokens if row in choice.drafted else len(choice.foretold.get(row, []))
            )
        return choice


def say(world: World, name: str, tokens: list[int]) -> None:
    """An answer token by token, nothing of which was drafted."""
    for token in tokens:
        world.step({name: [token]})
        world.drafted[name] = 0


def test_what_was_said_before_is_foretold():
    world = World()
    say(world, "/a", [7, 8, 9, 10, 11, 12, 7, 8, 9])
    choice = world.step({"/a": [10]})
    assert choice.tokens_of(0, {})[:2] == [11, 12]
    assert choice.drafter is None


def test_an_answer_serves_later_ones_of_its_scope():
    world = World()
    answer = list(range(20, 40))
    say(world, "s/a", answer)
    world.ended = {"s/a"}
    for name, known in (("s/b", True), ("t/c", False)):
        say(world, name, answer[:4])
        choice = world.step({name: [answer[4]]})
        assert (choice.tokens_of(0, {})[:2] == answer[5:7]) == known


def test_who_drafts_well_is_asked_and_who_does_not_is_left():
    """Drafts cost a tenth of a step a token; those of the first drafter are always accepted."""
    world = World(MEDUSA, seconds=lambda rows: 1.0 + 0.1 * (rows - 1))
    token = iter(range(100, 10**6))
    for _ in range(60):
        taken = world.drafted.get("/a", 0)
        choice = world.step({"/a": [next(token) for _ in range(taken + 1)]})
        world.adaptive.drafted("medusa", choice.tokens, 1, 0.05)
    assert choice.drafter == "medusa"
    assert choice.tokens == 3
    asked = []
    for _ in range(500):
        choice = world.step({"/a": [next(token)]})
        world.adaptive.drafted("medusa", choice.tokens, 1, 0.05)
        asked.append(choice.drafter is not None)
    assert 0 < sum(asked[-100:]) < 20, "now and then it is tried again"
    assert choice.tokens_of(0, {}) == []


def test_a_drafter_that_follows_anyway_pays_for_its_further_levels_only():
    """At the same seconds of drafting, the one whose first level is read in any case is taken."""
    world = World(MEDUSA, EAGLE, seconds=lambda rows: 1.0 + 0.02 * (rows - 1))
    for name in ("medusa", "eagle3"):
        for tokens in range(1, 5):
            world.adaptive.drafted(name, tokens, 1, 0.4 * tokens)
    token = iter(range(100, 10**6))
    for _ in range(8):
        taken = world.drafted.get("/a", 0)
        choice = world.step({"/a": [next(token) for _ in range(taken + 1)]})
    assert choice.drafter == "eagle3"


def test_rows_of_other_methods_and_rows_without_room_get_nothing():
    world = World(MEDUSA)
    choice = world.step({"/a": [5], "/b": [5]}, rows=[1])
    assert 0 not in choice.foretold
    assert 0 not in choice.drafted
    assert world.step({"/a": [5], "/b": [5]}, limit=0).drafter is None


def test_options_come_through_a_configuration():
    options = Options((EAGLE, MEDUSA), least=0.1, past_tokens=7, priors=False)
    assert Options.from_config(options.to_config()) == options
