"""Callers take turns by the time that they have taken; a clock of the test's own counts it."""

import asyncio
import threading

import pytest

from deployments.api import fair_threads
from deployments.api.fair_threads import FairThreads
from deployments.errors import ApiError

SMALL, LARGE = 1000, 200_000


class Held:
    """Calls that wait for the test, and the order in which they began."""

    def __init__(self):
        self.began, self.free = [], threading.Semaphore(0)

    def call(self, name):
        def run(_):
            self.began.append(name)
            assert self.free.acquire(timeout=60)
            return name

        return run


@pytest.fixture
def held():
    made = Held()
    yield made
    made.free.release(1000)


@pytest.fixture
def clock(monkeypatch):
    """Each call takes a second, unless the test says otherwise."""
    seconds = iter(range(1000))
    monkeypatch.setattr(fair_threads.time, "perf_counter", lambda: float(next(seconds)))


async def asked(threads, held, names, size=SMALL):
    """Ask for calls, whose owners are the first letters of their names."""
    tasks = [asyncio.create_task(threads.run(n[0], size, held.call(n))) for n in names]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.usefixtures("clock")
async def test_a_caller_with_one_call_is_next(held):
    threads = FairThreads([None], "test")
    tasks = await asked(threads, held, ["a1", "a2", "a3", "a4", "b1", "c1", "b2"])
    held.free.release(7)
    assert await asyncio.gather(*tasks) == ["a1", "a2", "a3", "a4", "b1", "c1", "b2"]
    assert held.began == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


async def test_one_queue_does_not_occupy_all_threads(held):
    threads = FairThreads([None] * 2, "test")
    many = await asked(threads, held, [f"a{i}" for i in range(8)], LARGE)
    [other] = await asked(threads, held, ["b"], LARGE)
    while len(held.began) < 2:
        await asyncio.sleep(0)
    assert set(held.began) == {"a0", "b"}
    [small] = await asked(threads, held, ["a small one"], SMALL)
    held.free.release(10)
    await asyncio.gather(*many, other, small)
    assert held.began[2] == "a small one"


async def test_a_queue_that_is_full_refuses_its_own_caller_only(held):
    threads = FairThreads([None], "test", waiting=2)
    tasks = await asked(threads, held, ["a1", "a2", "a3", "b1"])
    with pytest.raises(ApiError, match="2 of your requests wait here") as caught:
        await threads.run("a", SMALL, held.call("a4"))
    assert (caught.value.status, caught.value.code) == (429, "server_busy")
    held.free.release(4)
    assert await asyncio.gather(*tasks) == ["a1", "a2", "a3", "b1"]


@pytest.mark.usefixtures("clock")
async def test_a_caller_is_charged_for_calls_that_fail_too_and_not_for_those_it_left(held):
    threads, spent = FairThreads([None], "test"), []

    def fails(_):
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await threads.run("a", SMALL, fails, spent.append)
    assert spent == [1.0]
    [first, left] = await asked(threads, held, ["a1", "a2"])
    left.cancel()
    held.free.release(2)
    assert await first == "a1"
    assert await threads.run("a", SMALL, lambda _: "next", spent.append) == "next"
    assert held.began == ["a1"]
    assert len(spent) == 2
    assert all(queue.waiting or queue.seconds > threads._now for queue in threads._queues.values())
