"""Earlier states of what was learned, and the ways back to them."""

import pytest
from observations import observation

from deployments.learning import state_store
from deployments.learning.feedback import Feedback
from deployments.learning.state_store import UnknownSnapshotError

COLD = ("", -1)


@pytest.fixture
def often(monkeypatch):
    """Every batch of observations is due for a snapshot."""
    monkeypatch.setattr(state_store, "SNAPSHOT_SECONDS", 1e-9)


async def taught(actor, names):
    """The table once it has learned from so many answers, one after the other."""
    for name in names:
        assert (await actor.exchange([observation(name)], COLD)).acknowledged
    return (await actor.exchange([], COLD)).table


def file_of(number, folder):
    [file] = folder.rglob(f"state-{number:010d}.json")
    return file


@pytest.mark.usefixtures("often")
async def test_snapshots_are_kept_as_time_goes_by_and_the_oldest_go(config, monkeypatch):
    monkeypatch.setattr(state_store, "KEPT", 3)
    actor = Feedback(config)
    await taught(actor, "abcde")
    kept = await actor.history()
    assert len(kept) == 3
    assert [s.number for s in kept] == sorted((s.number for s in kept), reverse=True)
    assert {s.occasion for s in kept} == {"time"}
    assert kept[0].version > kept[1].version
    assert kept[0].clusters == len((await actor.exchange([], COLD)).table.assignment)
    assert (await Feedback(config).history()) == kept, "they outlive their actor"


@pytest.mark.usefixtures("often")
async def test_going_back_and_forth_again(config):
    actor = Feedback(config)
    early = await taught(actor, "ab")
    late = await taught(actor, "cdef")
    wanted = (await actor.history())[-2]
    back = await actor.roll_back(wanted.number)
    assert back == wanted
    table = (await actor.exchange([], COLD)).table
    assert table.version > late.version, "so that every ingress takes it"
    assert table.live.steps.sum() <= early.live.steps.sum()
    repeated = (await actor.exchange([observation("f")], COLD)).table
    assert repeated.live.steps.tolist() == table.live.steps.tolist(), "counted answers stay counted"

    newest = (await actor.history())[0]
    assert newest.occasion == "rollback"
    await actor.roll_back(newest.number)
    again = (await actor.exchange([], COLD)).table
    assert again.live.steps.tolist() == late.live.steps.tolist()

    successor = (await Feedback(config).exchange([], COLD)).table
    assert successor.live.steps.tolist() == again.live.steps.tolist(), "it is in the store"


@pytest.mark.usefixtures("often")
async def test_an_unreadable_snapshot_is_left_out(config, tmp_path):
    actor = Feedback(config)
    await taught(actor, "abc")
    last, lost, first = [snapshot.number for snapshot in await actor.history()]
    file_of(lost, tmp_path).write_text("{")
    assert [s.number for s in await actor.history()] == [last, first]
    said = rf"no snapshot {lost} \(there are {first}, {last}\)"
    with pytest.raises(UnknownSnapshotError, match=said):
        await actor.roll_back(lost)
