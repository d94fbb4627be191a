"""A replica's engine drafts with the versions that the store says, and goes on without it."""

import itertools
import logging
from typing import Any

import pytest
import random_heads
import torch
from decoding import SMALL, decode, hugging_face
from stored_heads import TARGET, drafted_answer, origin, store

from deployments.replica.heads import COUNTED, HeadFollower, HeadTally
from schemas import EngineConfig, FeedbackConfig, HeadCounts
from workers.loader import load_engine
from workers.torch_engine.engine import TorchEngine

_prompts = itertools.count(1)


@pytest.fixture
def engine(tiny_bundle):
    loaded = load_engine(["eagle3", "medusa"], tiny_bundle, EngineConfig.model_validate(SMALL))
    assert isinstance(loaded, TorchEngine)
    yield loaded
    loaded.close()


@pytest.fixture
def heads(tiny_bundle, tmp_path):
    torch.manual_seed(4)
    random_heads.save_heads(tmp_path / "heads", hugging_face(tiny_bundle.part("target")).config)
    return tmp_path / "heads"


@pytest.fixture
def kept(tmp_path):
    return store(str(tmp_path / "state"))


@pytest.fixture
def one(engine, tmp_path):
    feedback = FeedbackConfig(state_uri=str(tmp_path / "state"))
    return HeadFollower(engine, feedback, "tiny", TARGET)


async def versions(engine: TorchEngine, method: str) -> dict[str, int]:
    answer = await decode(engine, method, [next(_prompts), 2, 3], max_tokens=4)
    assert answer.stats is not None
    return answer.stats.head_versions


async def test_what_is_in_force_drafts(kept, one, engine, heads):
    one.follow()
    assert (one.serving, await versions(engine, "eagle3")) == ({}, {"eagle3": 0})
    kept.add(heads / "eagle3", origin())
    one.follow()
    assert await versions(engine, "eagle3") == {"eagle3": 0}, (
        "a version that is only stored does not serve"
    )
    kept.promote(1)
    one.follow()
    assert (one.serving, await versions(engine, "eagle3")) == ({"eagle3": 1}, {"eagle3": 1})
    assert await versions(engine, "medusa") == {"medusa": 0}
    kept.roll_back("eagle3")
    one.follow()
    assert (one.serving, await versions(engine, "eagle3")) == ({"eagle3": 0}, {"eagle3": 0})


async def test_a_canary_begins_and_ends(kept, one, engine, heads):
    kept.add(heads / "medusa", origin("medusa"))
    kept.try_out(1, 1 - 1e-9)  # the hash of any id is below that
    one.follow()
    assert await versions(engine, "medusa") == {"medusa": 1}
    assert one.serving == {"medusa": 0}
    kept.roll_back("medusa")
    one.follow()
    assert await versions(engine, "medusa") == {"medusa": 0}


async def test_a_head_that_does_not_fit_is_refused_once(kept, one, engine, heads, tmp_path, caplog):
    kept.add(heads / "eagle3", origin())
    (tmp_path / "spoilt").mkdir()
    kept.add(tmp_path / "spoilt", origin())
    for number, expected in ((1, 1), (2, 1), (1, 1)):
        kept.promote(number)
        for _ in range(2):
            one.follow()
        assert await versions(engine, "eagle3") == {"eagle3": expected}
        assert one.serving == {"eagle3": expected}
    refusals = [r.message for r in caplog.records if "is not used here" in r.message]
    assert len(refusals) == 1
    assert refusals[0].startswith("version 2 of eagle3 is not used here")
    assert [*one.refused] == [2]
    assert one.refused[2] in refusals[0]


async def test_a_damaged_version_does_not_hold_up_other_heads(kept, one, engine, heads):
    kept.promote(kept.add(heads / "eagle3", origin()).number)
    kept.promote(kept.add(heads / "medusa", origin("medusa")).number)
    (kept.folder(1) / "version.json").write_text("{")
    one.follow()
    assert one.serving == {"medusa": 2}
    assert await versions(engine, "medusa") == {"medusa": 2}


async def test_a_replica_that_refuses_the_version_in_force_has_no_canary(
    kept, one, engine, heads, tmp_path
):
    (tmp_path / "spoilt").mkdir()
    for folder in (heads / "eagle3", tmp_path / "spoilt"):
        kept.add(folder, origin())
    for _ in range(2):
        kept.try_out(1, 1 - 1e-9)
        one.follow()
        drafting = 0 if kept.in_force().numbers["eagle3"] else 1
        assert await versions(engine, "eagle3") == {"eagle3": drafting}
        kept.promote(2)
        one.follow()
        assert await versions(engine, "eagle3") == {"eagle3": 0}
    assert one.serving == {"eagle3": 0}


async def test_a_store_that_is_away_is_asked_again(kept, one, engine, heads, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    kept.add(heads / "eagle3", origin())
    kept.promote(1)
    one.follow()
    kept.add(heads / "eagle3", origin(parent=1))
    kept.promote(2)

    def away(*_: Any) -> None:
        raise OSError("the bucket is away")

    with monkeypatch.context() as patched:
        assert one._store is not None
        patched.setattr(one._store, "folder", away)
        for _ in range(2):
            one.follow()
    assert await versions(engine, "eagle3") == {"eagle3": 1}
    one.follow()
    assert await versions(engine, "eagle3") == {"eagle3": 2}
    told = [r.message for r in caplog.records if "until this is fixed" in r.message]
    assert told == ["heads stay as they are until this is fixed: the bucket is away"]


def test_the_versions_with_the_newest_answers_are_counted():
    tally = HeadTally()
    for version in (0, *range(1, COUNTED), 0, COUNTED):
        tally.saw(drafted_answer(7, 4, head_versions={"eagle3": version}))
    assert [one.version for one in tally.counts] == [*range(2, COUNTED), 0, COUNTED]
    assert tally.counts[-2].answers == 2


def test_answers_are_counted_by_version_without_their_first_token():
    tally = HeadTally()
    for stats in (
        drafted_answer(7, 4),
        drafted_answer(3, 3),
        drafted_answer(9, 3, head_versions={"eagle3": 0, "medusa": 1}),
        drafted_answer(1, 1),
        drafted_answer(7, 4, finish_reason="error"),
        drafted_answer(7, 4, head_versions={}),
    ):
        tally.saw(stats)
    assert [tuple(counts.model_dump().values()) for counts in tally.counts] == [
        ("eagle3", 2, 2, 5, 8, 13, 40, 22),
        ("eagle3", 0, 1, 2, 8, 4, 64, 16),
        ("medusa", 1, 1, 2, 8, 4, 64, 16),
    ]
    assert all(isinstance(counts, HeadCounts) for counts in tally.counts)
    assert tally.answers == 4
