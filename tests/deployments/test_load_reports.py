"""The board of load reports and an ingress's line to it, without Ray."""

import asyncio
from types import SimpleNamespace

import pytest
from asking import Clock
from observations import load

from deployments import loads
from deployments.actors import ActorLine
from deployments.loads import LoadBoard, LoadsLine
from deployments.replica.method import MethodReplica
from ops.common.simulated_time import run_simulated


@pytest.fixture
def clock(monkeypatch):
    """The board's clock."""
    made = Clock()
    monkeypatch.setattr(loads, "time", SimpleNamespace(monotonic=made))
    return made


class Door:
    """Leads to a board, where there is one."""

    def __init__(self):
        self.board = None
        self.line = LoadsLine(self.connect)

    async def connect(self):
        if self.board is None:
            raise ValueError("no such actor")
        return self.board


async def test_the_last_report_of_each_replica_counts_until_it_expires(clock):
    board = LoadBoard()
    await board.report(load("a", running=1))
    await board.report(load("a", running=2))
    clock.now += 1.0
    await board.report(load("b"))
    assert [r.running for r in (await board.loads()).reports] == [2, 0]
    clock.now += 2.5
    assert [r.replica for r in (await board.loads()).reports] == ["b"]
    clock.now += 60.0
    assert (await board.loads()).reports == ()
    assert board.idle_seconds() == 0.0


async def test_a_young_board_does_not_hide_replicas_known_before(clock):
    door = Door()
    door.board = LoadBoard()
    await door.board.report(load("a"))
    await door.board.report(load("b"))
    await door.line.fetch()
    door.board, door.line._line._remote = LoadBoard(), None
    await door.board.report(load("b", running=3))
    await door.line.fetch()
    assert {r.replica: r.running for r in door.line.reports} == {"a": 0, "b": 3}
    clock.now += 2.9
    await door.board.report(load("b"))
    await door.line.fetch()
    assert {r.replica for r in door.line.reports} == {"a", "b"}, "as long as any silent replica"
    clock.now += 0.2
    await door.line.fetch()
    assert {r.replica for r in door.line.reports} == {"b"}


def test_an_ingress_hears_of_a_change_at_once_and_otherwise_once_a_second():
    async def heard():
        now = asyncio.get_running_loop().time
        board, began = LoadBoard(), now()
        await board.report(load("a"))
        seen = (await board.loads()).number
        assert (await board.loads(seen + 1)).number == seen, "of an earlier board"
        assert now() == began
        waiting = asyncio.create_task(board.loads(seen))
        await asyncio.sleep(0.25)
        await board.report(load("a", time=7.0))
        assert (await waiting).reports[0].time == 7.0
        assert now() == began + loads.IDLE_SECONDS
        waiting = asyncio.create_task(board.loads(seen))
        await asyncio.sleep(0.25)
        await board.report(load("a", running=1))
        assert (await waiting).reports[0].running == 1
        assert now() == began + loads.IDLE_SECONDS + 0.25

    run_simulated(heard())


def test_a_replica_reports_changes_at_once_and_otherwise_once_a_second():
    async def reported():
        board = LoadBoard()
        replica, times, now = Replica([board]), [], asyncio.get_running_loop().time

        async def report(one):
            times.append(now())
            await LoadBoard.report(board, one)

        board.report = report
        task = asyncio.create_task(replica._report_forever())
        await asyncio.sleep(10.0)
        assert 7 <= len(times) <= 11
        times.clear()
        changed, replica._load = now(), lambda: load(replica._name, running=1)
        await asyncio.sleep(0.4)
        task.cancel()
        assert times[0] - changed < 0.4

    run_simulated(reported())


class Replica(MethodReplica):
    """The reports of a replica, to the board that `boards` ends with. Metrics and warm-up may
    fail."""

    def __init__(self, boards, name="r", metrics=lambda _: None, warm_up=None):
        self._name, self._boards, self._warm = name, boards, False
        self._config = SimpleNamespace(engine=SimpleNamespace(openai=None))
        self._metrics = SimpleNamespace(reported=metrics, heads=metrics)
        self._warmed_up_by = warm_up

    def __del__(self):
        pass

    def _load(self):
        return load(self._name)

    async def _warm_up(self):
        if self._warmed_up_by is not None:
            await self._warmed_up_by()

    def _line(self, _):
        async def connect():
            return SimpleNamespace(report=SimpleNamespace(remote=self._boards[-1].report))

        return ActorLine(connect)


def test_a_new_board_hears_from_every_replica_before_it_settles(monkeypatch):
    """Their reports have failed for a minute."""

    async def settled():
        now = asyncio.get_running_loop().time
        monkeypatch.setattr(loads, "time", SimpleNamespace(monotonic=now))
        names, boards = {str(i) for i in range(8)}, []
        tasks = [asyncio.create_task(Replica(boards, i)._report_forever()) for i in names]
        await asyncio.sleep(60.0)
        boards.append(LoadBoard())
        while not (last := await boards[-1].loads()).settled:
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        return {report.replica for report in last.reports} == names

    assert run_simulated(settled())


async def test_while_the_board_is_away_the_last_reports_stay(caplog):
    door = Door()
    door.board = LoadBoard()
    await door.board.report(load("a"))
    await door.line.fetch()
    door.board, door.line._line._remote = None, None
    for _ in range(3):
        await door.line.fetch()
    assert [r.replica for r in door.line.reports] == ["a"]
    assert caplog.text.count("load board away") == 1


def test_pauses_grow_with_failures_in_a_row_and_end_with_them():
    from deployments.actors import LONGEST_PAUSE_SECONDS

    door = Door()
    for failures, seconds in ((0, 0.25), (1, 0.5), (4, 4.0), (1000, LONGEST_PAUSE_SECONDS)):
        door.line._line.failures = failures
        pauses = [door.line._line.pause(0.25) for _ in range(20)]
        assert min(pauses) >= 0.8 * seconds
        assert max(pauses) <= 1.2 * seconds
        assert len(set(pauses)) > 1, "several processes do not call in step"
    assert door.line._line.pause(60.0) >= 48.0, "a rare call stays rare"
