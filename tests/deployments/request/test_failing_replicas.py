"""A replica that fails fast looks idle: its failures keep further requests away from it."""

import asyncio

import pytest
from asking import Clock, answered, prompt, spoken
from observations import load, request, tracked

from deployments.request.circuits import PAUSE_SECONDS
from deployments.request.in_flight import LOST, NEVER, PAUSES, REMEMBERED, Failures, InFlight
from schemas import DecodeChunk
from workers.engine import EngineBusyError, EngineRefusedError, RequestFaultError

BOTH = ["bad", "good"]


def test_a_replica_pauses_after_two_failures_without_an_answer_between():
    failures = Failures(clock := Clock())
    failures.failed("bad", "x")
    assert failures.ranks(BOTH, [False, False], "new") == [0, 0], "one may be the request's doing"
    failures.answered("bad", "y")
    failures.failed("bad", "z")
    assert failures.ranks(BOTH, [False, False], "new") == [0, 0]
    failures.failed("bad", "u")
    assert failures.ranks(BOTH, [False, True], "new") == [PAUSES, LOST]
    clock.now += PAUSE_SECONDS
    assert failures.ranks(BOTH, [False, False], "new") == [0, 0]
    failures.failed("bad", "v")
    assert failures.ranks(BOTH, [False, False], "new") == [PAUSES, 0], "once more, until an answer"
    failures.answered("bad", "w")
    assert failures.ranks(BOTH, [False, False], "new") == [0, 0]


def test_a_request_leaves_out_the_replica_that_failed_it_while_another_is_there():
    failures = Failures()
    failures.failed("bad", "x")
    failures.answered("bad", "y")
    assert failures.ranks(BOTH, [False, False], "x") == [NEVER, 0]
    assert failures.ranks(BOTH, [False, True], "x") == [0, LOST], "the other one cannot answer"
    assert failures.ranks(["bad"], [False], "x") == [0]


def test_failures_take_bounded_room():
    failures = Failures()
    for number in range(REMEMBERED + 10):
        failures.failed(f"r{number}", f"x{number}")
    assert len(failures._replicas) == len(failures._requests) == REMEMBERED


@pytest.mark.parametrize("others", [0, 1000])
def test_the_idlest_replica_is_left_out_while_it_pauses(others):
    """Also where most requests are other ingresses', and only two replicas are compared."""
    busy = {"running": others, "outstanding_tokens": 900}
    reports = [load("bad", methods=("a",)), load("good", methods=("a",), **busy)]
    flying = InFlight(lambda: reports)
    for name in "xy":
        assert flying.ranked(BOTH, request("new"))[0] == "bad"
        with tracked(flying, request(name)):
            flying.place(name, "bad", accepted=True)
            flying.failed(name)
        with tracked(flying, request(name)):
            assert flying.ranked(BOTH, request(name)) == ["good"]
    assert flying.ranked(BOTH, request("new")) == ["good"]
    with tracked(flying, request("z")):
        flying.place("z", "bad", accepted=True)
        flying.ended("z")
    assert flying.ranked(BOTH, request("new")) == ["bad", "good"]


async def test_the_next_method_is_asked_on_another_replica(ingress):
    """Both methods have both replicas, and the one that fails in no time has the least work."""
    placed = served_by_two(ingress, RuntimeError("gone"))
    for _ in range(4):
        answer = await answered(ingress, prompt())
        assert (await spoken(answer))[-1].finish_reason == "length"
    assert placed == ["bad", "good", "bad", "good", "good", "good"]


@pytest.mark.parametrize(
    "error", [EngineRefusedError("no"), EngineBusyError("full"), RequestFaultError("dead end")]
)
async def test_what_is_not_the_replicas_failure_does_not_count(ingress, error):
    placed = served_by_two(ingress, error)
    for _ in range(3):
        await asyncio.gather(answered(ingress, prompt(pinned="naive")), return_exceptions=True)
    assert set(placed) == {"bad"}


async def test_clients_that_leave_do_not_count(ingress):
    placed = served_by_two(ingress, None)
    for _ in range(3):
        await (await answered(ingress, prompt())).close()
    assert placed == ["bad"] * 3


def served_by_two(ingress, error):
    """Let two replicas serve all methods. One of them raises `error`, or waits after a chunk if
    that is None. Return the replicas that were asked, in order."""
    [report] = ingress.loads.reports
    ingress.loads.reports = tuple(
        report.model_copy(update={"replica": name, "outstanding_tokens": tokens})
        for name, tokens in (("bad", 0), ("good", 5000))
    )
    in_flight, placed = ingress.answerer.in_flight, []

    def choosing(real):
        async def stream(asked, whole):
            name = in_flight.ranked(BOTH, asked)[0]
            in_flight.place(asked.request_id, name, accepted=True)
            placed.append(name)
            if name == "bad" and error is not None:
                raise error
            if name == "bad":
                yield DecodeChunk(request_id=asked.request_id, text="so far")
                await asyncio.Event().wait()
            async for chunk in real(asked, whole):
                yield chunk

        return stream

    for name, real in list(ingress.streams.items()):
        ingress.streams[name] = choosing(real)
    return placed
