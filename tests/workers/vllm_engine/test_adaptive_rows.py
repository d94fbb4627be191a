"""Whom the adaptive method of a shared vLLM engine lets draft. A step is a stand-in for vLLM's."""

from types import SimpleNamespace
from typing import Any

import pytest

from schemas.config import DatastoreConfig
from workers.drafting.lookup.datastore import write_corpus
from workers.vllm_engine.drafting.adaptive import Adaptive
from workers.vllm_engine.drafting.portfolio import Learned, Options

EAGLE = Learned("vllm_eagle3", "eagle3", 3)
MEDUSA = Learned("vllm_medusa", "medusa", 3)
ROOM = 8


class Watch:
    """A stopwatch on the world's clock; `read` counts how often somebody asks it."""

    read = 0

    def __init__(self, world: "World") -> None:
        self.world, self.began, self.ended = world, 0.0, 0.0

    def start(self) -> None:
        self.began = self.world.now

    def stop(self) -> None:
        self.ended = self.world.now

    def seconds(self) -> float:
        Watch.read += 1
        return self.ended - self.began


class World:
    """Sequences of one engine whose steps take as long as `seconds` says of their rows."""

    def __init__(self, *learned: Learned, seconds=lambda _rows: 1.0, **options: Any) -> None:
        self.now, self.seconds = 0.0, seconds
        self.texts: dict[str, list[int]] = {}
        self.drafted: dict[str, int] = {}
        self.predicted: dict[str, list[int]] = {}
        self.unread: dict[str, int] = {}
        self.running: set[str] = set()
        self.unkept: set[str] = set()
        unread = {"eagle3": lambda name: self.unread.get(name, 0)}
        self.adaptive = Adaptive(Options(learned, **options), unread, lambda: Watch(self))
        for rows in (1, 2, 4, 8, 16):
            self.adaptive.costs.measured(rows, seconds(rows))

    def step(self, came: dict[str, list[int]], rows: list[int] | None = None, limit: int = ROOM):
        """These tokens have come; who is chosen now. Nothing has ended by itself."""
        names = list(came)
        scheduled = {name: self.drafted.get(name, 0) + 1 for name in names}
        self.running |= came.keys()
        for name, tokens in came.items():
            self.texts.setdefault(name, [1, 2, 3]).extend(tokens)
        step: Any = SimpleNamespace(
            request=lambda row: names[row],
            verified=lambda row: scheduled[names[row]],
            gone=lambda known: [name for name in known if name not in self.running],
            sampled=list(came.values()),
            drafted=lambda: [self.drafted.get(name, 0) for name in names],
            length=lambda row: len(self.texts[names[row]]),
            tokens=lambda row, since: self.texts[names[row]][since:],
            prompt_tokens=lambda _row: 3,
            greedy=lambda _row: True,
            predicted=lambda row: self.predicted.get(names[row], []),
            kept=lambda row: names[row] not in self.unkept,
            asked=lambda row: (f"asked {names[row]}", names[row].split("/")[0]),
        )
        self.now += self.seconds(sum(scheduled.values()))
        chosen = range(len(names)) if rows is None else rows
        choice = self.adaptive.choose(step, list(chosen), [limit] * len(names))
        for row, name in enumerate(names):
            self.drafted[name] = choice.drafted.get(row, len(choice.looked_up.get(row, [])))
        return choice

    def draft(self, drafter: str, tokens: int, seconds: float, *requests: str) -> None:
        """It drafts for so long."""
        with self.adaptive.timed(drafter, tokens, requests):
            self.now += seconds


def say(world: World, name: str, tokens: list[int]) -> None:
    """An answer token by token, nothing of which was drafted."""
    for token in tokens:
        world.step({name: [token]})
        world.drafted[name] = 0


def test_an_answer_serves_later_ones_of_its_scope():
    world = World()
    answer = list(range(20, 40))
    say(world, "s/a", answer)
    world.running.clear()
    for name, known in (("s/b", True), ("t/c", False)):
        say(world, name, answer[:4])
        choice = world.step({name: [answer[4]]})
        assert (choice.tokens_of(0, {})[:2] == answer[5:7]) == known


def test_a_datastore_serves_the_answers_that_quote_it(tmp_path):
    text = list(range(20, 60))
    write_corpus(tmp_path, [text], "a" * 64)
    stored = DatastoreConfig(folder=tmp_path, scopes=("tenant s",)), "a" * 64
    for name, known in (("tenant s/a", True), ("tenant t/a", False)):
        world = World(stored=stored)
        say(world, name, text[:9])
        choice = world.step({name: [text[9]]})
        assert (choice.tokens_of(0, {})[:2] == text[10:12]) == known


def test_an_answer_of_another_method_serves_later_ones():
    world = World()
    answer = list(range(20, 40))
    for token in answer:
        world.step({"s/a": [token]}, rows=[])
    world.running.clear()
    say(world, "s/b", answer[:4])
    assert world.step({"s/b": [answer[4]]}).tokens_of(0, {})[:2] == answer[5:7]
    assert list(world.adaptive._sequences) == ["s/b"]


@pytest.mark.parametrize("rows", [None, []])
def test_an_answer_that_must_not_be_kept_serves_no_later_one(rows):
    world = World()
    world.unkept.add("s/a")
    for token in range(20, 40):
        world.step({"s/a": [token]}, rows=rows)
    world.running.clear()
    say(world, "s/b", [20, 21, 22, 23, 24])
    assert not world.adaptive._past.bytes


def test_what_has_ended_is_forgotten():
    world = World(MEDUSA)
    say(world, "s/a", [5, 6])
    world.running.clear()
    world.step({"s/b": [5]})
    assert list(world.adaptive._sequences) == ["s/b"]


def test_of_each_sequences_draft_as_much_is_verified_as_pays():
    """One sequence's drafts always hold, another's never; a token costs a tenth."""
    world = World(MEDUSA, seconds=lambda rows: 1.0 + 0.1 * (rows - 2))
    token = iter(range(100, 10**6))
    verified = {0: 0, 1: 0}
    for _ in range(120):
        came = {"/a": [next(token) for _ in range(world.drafted.get("/a", 0) + 1)]}
        choice = world.step(came | {"/b": [next(token)]})
        world.draft("medusa", max(choice.drafted.values(), default=0), 0.05, "/a", "/b")
        for row, tokens in choice.drafted.items():
            drafts = {row: [1, 2, 3]}
            assert choice.tokens_of(row, drafts) == [1, 2, 3][:tokens]
            verified[row] += tokens
    assert verified[1] < 0.8 * verified[0]
    assert choice.drafted[0] == 3


def test_rows_of_other_methods_and_rows_without_room_get_nothing():
    world = World(MEDUSA)
    choice = world.step({"/a": [5], "/b": [5]}, rows=[1])
    assert 0 not in choice.looked_up
    assert 0 not in choice.drafted
    assert world.step({"/a": [5], "/b": [5]}, limit=0).drafter is None


def test_who_drafted_each_step_is_told_once_the_request_has_ended():
    world = World(MEDUSA, seconds=lambda rows: 1.0 + 0.1 * (rows - 1))
    token, drafters = iter(range(100, 10**6)), []
    for step in range(60):
        taken = world.drafted.get("/a", 0)
        drafters += ["vllm_medusa" if taken else "none"] * (step > 0)
        choice = world.step({"/a": [next(token) for _ in range(taken + 1)]})
        world.draft("medusa", max(choice.drafted.values(), default=0), 0.05, "/a")
    world.running.clear()
    assert drafters.count("vllm_medusa") > 30
    assert world.adaptive.authors.take("asked /a") == drafters
    assert world.adaptive.authors.take("asked /a") == []
    assert world.adaptive.authors.take("asked of nobody") == []


def test_looked_up_tokens_count_as_the_look_ups():
    world = World()
    say(world, "/a", [7, 8, 9, 10, 11, 12, 7, 8, 9])
    world.step({"/a": [10]})
    world.step({"/a": [11, 12, 7]})
    assert world.adaptive.authors.take("asked /a") == [*["none"] * 9, "suffix"]


def test_after_a_failure_every_request_begins_anew():
    world, other = World(), World()
    for one in (world, other):
        say(one, "/a", [7, 8, 9, 10, 11, 12, 7, 8])
    world.adaptive.restart()
    for one in (world, other):
        say(one, "/a", [9])
    assert world.step({"/a": [10]}).tokens_of(0, {}) == other.step({"/a": [10]}).tokens_of(0, {})
    world.adaptive.undrafted(["/a", "nobody"])


def test_a_predicted_answer_is_copied_and_told_apart():
    world = World(past_bytes=0)
    answer = list(range(20, 60))
    world.predicted["s/a"] = answer
    say(world, "s/a", answer[:5])
    draft = world.step({"s/a": [answer[5]]}).tokens_of(0, {})
    assert draft == answer[6 : 6 + len(draft)] != []
    world.step({"s/a": answer[6 : 7 + len(draft)]})
    assert world.adaptive.authors.take("asked s/a")[-1] == "prediction"


def test_a_drafters_time_is_read_when_the_device_has_passed_it():
    world = World(MEDUSA)
    told = []
    world.adaptive.controller.drafted = lambda *told_: told.append(told_)
    world.step({"/a": [5]})
    read = Watch.read
    world.draft("medusa", 3, 0.25, "/a")
    assert Watch.read == read
    world.step({"/a": [6]})
    assert told == [(3, 0.25, [0])]
    world.step({"/a": [7]})
    assert len(told) == 1
