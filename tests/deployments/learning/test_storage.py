"""A store that cannot be opened, goes away or hangs: serving goes on, and nothing is forgotten."""

import asyncio
import threading
from contextlib import contextmanager

import pytest
from asking import until
from observations import observation
from stores import Bucket, Gated, gone

from deployments.artifacts import served_table
from deployments.learning import storage as storage_module
from deployments.learning.feedback import Feedback
from deployments.learning.state_store import StoreAwayError, file_system
from deployments.learning.storage import check_store

COLD = ("", -1)


@pytest.fixture
def gated(config):
    """The configuration with a store that can hang."""
    Gated.store.clear()
    Gated.waiting = threading.Semaphore(0)
    Gated.gate.set()
    feedback = config.feedback.model_copy(update={"state_uri": "gated://state"})
    yield config.model_copy(update={"feedback": feedback})
    Gated.gate.set()


@contextmanager
def hanging():
    """Calls of the gated store do not end during the block, and nobody waits for them for long."""
    patience, storage_module.CALL_SECONDS = storage_module.CALL_SECONDS, 0.01
    Gated.gate.clear()
    try:
        yield
    finally:
        Gated.gate.set()
        storage_module.CALL_SECONDS = patience


async def taught(actor, names):
    return await actor.exchange([observation(name) for name in names], COLD)


async def acknowledged(actor, names):
    """Send until all of it is in the store: a call that hung before has to end first."""
    while (reply := await taught(actor, names)).acknowledged != set(names):
        await asyncio.sleep(0)
    return reply


async def learned(actor):
    """The answers that are counted in the actor's table."""
    return set(actor._learner.state()["seen"])


NOT_HERE = {
    "s3://bucket/state": "pip install 'specadapt[s3]'",
    "gs://bucket/state": "pip install 'specadapt[gcs]'",
    "abfs://container/state": "adlfs",
    "warp://state": "warp",
}


@pytest.mark.parametrize(("uri", "said"), NOT_HERE.items())
async def test_a_file_system_that_is_not_installed(config, uri, said):
    with pytest.raises(StoreAwayError, match=uri):
        file_system(uri)
    feedback = config.feedback.model_copy(update={"state_uri": uri})
    actor = Feedback(config.model_copy(update={"feedback": feedback}))
    reply = await taught(actor, "ab")
    assert said in reply.problem
    assert (reply.acknowledged, reply.epoch) == (frozenset(), 0)
    disk = served_table(config)
    assert (reply.table.fit_id, reply.table.version) == (disk.fit_id, disk.version)
    assert reply.table.assignment == disk.assignment


async def test_a_folder_that_cannot_be_made_is_opened_once_it_can(config):
    with gone(config):
        actor = Feedback(config)
        reply = await taught(actor, "abc")
        assert "Not a directory" in reply.problem or "File exists" in reply.problem
        assert not reply.acknowledged
        assert not await actor.warmed_up("r", [observation("w").stats])
    reply = await taught(actor, "abc")
    assert reply.acknowledged == set("abc")
    assert (reply.problem, reply.epoch) == (None, 1)
    assert await learned(actor) == set("abc")


async def test_what_was_stored_is_gone_on_with_when_the_store_is_back(config):
    await taught(Feedback(config), "abc")
    with gone(config):
        actor = Feedback(config)
        await taught(actor, "d")
        assert await learned(actor) == set()
    await actor.exchange([], COLD)
    assert await learned(actor) == set("abc"), "also where nobody asks for anything"
    assert (await taught(actor, "d")).acknowledged
    assert await learned(Feedback(config)) == set("abcd")


async def test_a_store_that_goes_away_leaves_the_observations_with_the_ingress(config):
    actor = Feedback(config)
    await taught(actor, "a")
    with gone(config):
        reply = await taught(actor, "bc")
        assert not reply.acknowledged
        assert reply.problem
        with pytest.raises(StoreAwayError):
            await actor.reset()
        with pytest.raises(StoreAwayError):
            await actor.history()
        assert reply.table.live.steps.sum() > 0.0, "what was learned stays in force"
    assert (await taught(actor, "bc")).acknowledged == set("bc")
    assert await learned(Feedback(config)) == set("abc")


async def test_a_store_that_hangs_holds_nobody_up(gated):
    actor = Feedback(gated)
    await taught(actor, "ab")
    with hanging():
        replies = [await taught(actor, "cd") for _ in range(50)]
        assert all("answer" in reply.problem for reply in replies)
        assert not any(reply.acknowledged for reply in replies)
        with pytest.raises(StoreAwayError):
            await actor.history()
        assert Gated.waiting.acquire(timeout=120)
        assert not Gated.waiting.acquire(blocking=False), "one thread waits for it, not fifty"
    await acknowledged(actor, "cd")
    assert await learned(actor) == set("abcd")


async def test_a_store_is_back_although_nothing_is_left_to_store(gated):
    actor = Feedback(gated)
    with hanging():
        assert (await taught(actor, "a")).problem
    await until(lambda: actor._storage._call.done())
    assert actor._storage.stored == set("a")
    assert (await actor.exchange([], COLD)).problem is None


async def test_a_store_that_hangs_at_the_start_is_opened_when_it_answers(gated):
    await taught(Feedback(gated), "ab")
    with hanging():
        actor = Feedback(gated)
        assert "still does not answer" in (await taught(actor, "c")).problem
        assert (await actor.exchange([], COLD)).epoch == 0
    reply = await acknowledged(actor, "c")
    assert reply.epoch == 3, "the claim that hung was waited for, not made again"
    assert await learned(actor) == set("abc")


async def test_what_a_slow_store_has_taken_in_the_end_is_acknowledged(gated):
    """Every call takes longer than anybody waits."""
    actor = Feedback(gated)
    await taught(actor, "a")
    with hanging():
        assert not (await taught(actor, "bc")).acknowledged
    await until(lambda: actor._storage.stored == set("bc"))
    with hanging():
        assert (await taught(actor, "bcd")).acknowledged == set("bc")


async def test_a_problem_is_logged_once_and_so_is_its_end(config, caplog):
    caplog.set_level("INFO")
    actor = Feedback(config)
    with gone(config):
        for _ in range(5):
            await taught(actor, "a")
    await taught(actor, "a")
    assert caplog.text.count("nothing is stored until this is fixed") == 1
    assert caplog.text.count("the store is back") == 1


async def test_a_superseded_owner_says_so_and_goes_on_saying_it(config):
    old = Feedback(config)
    Feedback(config)
    for _ in range(2):
        reply = await taught(old, "a")
        assert "no longer learning" in reply.problem
        assert not reply.acknowledged


def test_a_check_leaves_nothing_behind(tmp_path):
    check_store(str(tmp_path / "a" / "b"), 60.0)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    check_store(str(tmp_path / "there"), 60.0)
    assert list((tmp_path / "there").iterdir()) == []
    check_store("bucket://checked/state", 60.0)
    assert not [path for path in Bucket.store if "checked" in path]


def test_a_check_finds_what_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreAwayError, match=r"file/state"):
        check_store(str(tmp_path / "file" / "state"), 60.0)
    with pytest.raises(StoreAwayError, match="/proc/state"):
        check_store("/proc/state", 60.0)


def test_a_check_of_a_store_that_hangs_ends(gated):
    assert gated.feedback.state_uri == "gated://state"
    with hanging(), pytest.raises(StoreAwayError, match="has not answered"):
        check_store("gated://state/x", 0.01)
