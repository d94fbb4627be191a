"""Loops in the background go on after errors that nothing foresees."""

import asyncio
from types import SimpleNamespace

import pytest

from deployments.actors import ActorLine, forever
from deployments.head_training.actor import SampleLine
from deployments.ingress import Ingress
from deployments.learning.link import FeedbackLink
from deployments.loads import LoadsLine
from ops.common.simulated_time import run_simulated
from tests.deployments.test_load_reports import Replica


class Broken:
    """Fail as often as given, then work. calls: their times on the event loop's clock."""

    def __init__(self, failures):
        self.failures, self.calls = failures, []

    def __call__(self, *_):
        self.calls.append(asyncio.get_running_loop().time())
        if len(self.calls) <= self.failures:
            raise ArithmeticError("broken on purpose")

    async def asked(self, *_):
        self()


def run_for(seconds, start):
    """Run the coroutine of `start()` for some simulated seconds, and cancel it."""

    async def run():
        task = asyncio.create_task(start())
        await asyncio.sleep(seconds)
        assert not task.done(), "the loop has ended"
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), "a loop ends when it is cancelled"

    run_simulated(run())


def test_a_loop_repeats_its_call_after_errors_with_the_same_pauses(caplog):
    broken = Broken(3)
    run_for(10.5, lambda: forever(broken.asked, lambda _: 1.0))
    assert len(broken.calls) == 11
    assert [b - a for a, b in zip(broken.calls, broken.calls[1:], strict=False)] == [1.0] * 10
    assert len(caplog.records) == 1, "the first in a row"


def test_the_pause_learns_how_long_a_call_took(monkeypatch):
    monkeypatch.setattr("deployments.actors.time", Loop)
    begun = []

    async def slow():
        begun.append(Loop.monotonic())
        await asyncio.sleep(0.4)

    run_for(3.5, lambda: forever(slow, lambda spent: 1.0 - spent))
    assert begun == pytest.approx([0.0, 1.0, 2.0, 3.0])


class Loop:
    """The event loop's clock in the place of the module `time`."""

    @staticmethod
    def monotonic():
        return asyncio.get_running_loop().time()


@pytest.mark.parametrize(
    ("kind", "once", "work"),
    [
        (LoadsLine, "fetch", LoadsLine.fetch_forever),
        (FeedbackLink, "exchange", FeedbackLink.exchange_forever),
        (SampleLine, "send", SampleLine.send_forever),
    ],
)
def test_the_lines_of_an_ingress_go_on(monkeypatch, kind, once, work):
    broken, line = Broken(2), object.__new__(kind)
    line._line, line._waiting = ActorLine(None), {}
    monkeypatch.setattr(line, once, broken.asked, raising=False)
    run_for(60.0, lambda: work(line))
    assert len(broken.calls) > 3


def test_a_replica_whose_warm_up_failed_reports():
    board, warm_up = SimpleNamespace(report=(reported := Broken(0)).asked), Broken(1)
    run_for(5.0, Replica([board], warm_up=warm_up.asked)._report_forever)
    assert len(warm_up.calls) == 1
    assert len(reported.calls) > 3


async def test_the_end_of_serving_sends_what_waits():
    """What comes while an ingress serves is exchanged, and at its end all that is left."""
    ended, exchanged = [], []

    class Line:
        async def exchange_forever(self):
            try:
                await asyncio.sleep(3600.0)
            finally:
                ended.append("loop")

        fetch_forever = send_forever = exchange_forever

        async def exchange(self, everything):
            exchanged.append((everything, len(ended)))

        async def send(self):
            exchanged.append("samples")

    ingress = object.__new__(Ingress)
    ingress._link = ingress._loads = ingress._samples = Line()
    ingress._look = None
    async with ingress._exchanging():
        await asyncio.sleep(0)
        assert not exchanged
    assert exchanged == [(True, 0), "samples"]
    await asyncio.sleep(0)
    assert len(ended) == 3
