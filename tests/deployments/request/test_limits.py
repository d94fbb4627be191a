"""Deadlines, circuit breakers and clients that leave, over a real engine."""

import asyncio
import json

import pytest
from asking import (
    HELLO,
    Client,
    Clock,
    Counted,
    answered,
    broken,
    events,
    posted,
    prompt,
    reached,
    spoken,
    until,
)

from deployments.api.answering import DEADLINE
from deployments.errors import ApiError
from deployments.request.circuits import CONSECUTIVE_FAILURES, PAUSE_SECONDS, Circuit
from schemas import DecodeChunk
from workers.engine import EngineBusyError

LONG = HELLO | {"model": "tiny:naive", "max_tokens": 400, "ignore_eos": True}


@pytest.fixture
def clock(ingress):
    """The circuits' clock."""
    ingress.answerer.circuits._clock = made = Clock()
    return made


def silent(reached, closed):
    """A replica that accepts and never says anything."""

    async def stream(request, _):
        reached.append(request.method)
        try:
            await asyncio.Event().wait()
            yield DecodeChunk(request_id=request.request_id, text="never")
        finally:
            closed.append(request.method)

    return stream


async def post(ingress, body, milliseconds):
    headers = {DEADLINE: str(milliseconds)}
    return await ingress.http.post("/v1/chat/completions", json=body, headers=headers)


async def ends_within_one_step(ingress, steps):
    """Nobody waits for the answer any more, and a step may be under way: it is the last."""
    begun = steps.begun
    steps.free.set()
    await until(lambda: ingress.engine.load().running == 0)
    assert steps.begun <= begun + 1


class TestDeadline:
    async def test_before_the_first_chunk_it_is_504_and_the_work_ends(self, ingress, steps):
        steps.held = lambda _: True
        response = await post(ingress, LONG, 300)
        assert response.status_code == 504
        assert response.json()["error"]["code"] == "deadline_exceeded"
        assert response.headers["x-should-retry"] == "false"
        await ends_within_one_step(ingress, steps)
        ends = {observed.stats.finish_reason for observed in ingress.link._waiting.values()}
        assert ends <= {"cancelled"}

    async def test_after_the_first_chunk_it_is_an_error_event(self, ingress, steps):
        counted = ingress.answerer._metrics.requests = Counted()
        for seconds in (1, 4, 16, 64):  # the first in which this machine comes to the first chunk
            steps.anew()
            steps.held = lambda _: steps.begun > 2
            response = await post(ingress, LONG | {"stream": True}, 1000 * seconds)
            await ends_within_one_step(ingress, steps)
            if response.status_code == 200:
                break
        *said, last = events(response)
        assert said
        assert json.loads(last)["error"]["code"] == "deadline_exceeded"
        assert [tags["outcome"] for tags in counted.tags] == ["deadline"]

    @pytest.mark.parametrize("said", ["", "0", "-5", "1.5", "soon", "9" * 30, "٣"])
    async def test_what_is_no_deadline_is_named(self, ingress, said):
        headers = {DEADLINE: said.encode()}
        response = await ingress.http.post("/v1/chat/completions", json=HELLO, headers=headers)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == DEADLINE


class TestCircuit:
    async def test_a_method_that_fails_rests_and_is_tried_again(self, ingress, clock):
        calls, real = [], ingress.streams["draft_verify"]

        def failing(request, whole):
            calls.append(request)
            return broken(RuntimeError("gone"))(request, whole)

        ingress.streams["draft_verify"] = failing
        for _ in range(CONSECUTIVE_FAILURES + 3):
            answer = await answered(ingress, prompt())
            assert (answer.method, answer.reason) == ("ngram", "failover")
            await spoken(answer)
        assert len(calls) == CONSECUTIVE_FAILURES
        circuits = (await ingress.http.get("/v1/routing")).json()["circuits"]
        assert circuits == {"naive": "closed", "draft_verify": "open", "ngram": "closed"}

        clock.now += PAUSE_SECONDS
        assert ingress.answerer.circuits.states()["draft_verify"] == "half_open"
        assert (await answered(ingress, prompt())).reason == "failover"
        assert len(calls) == CONSECUTIVE_FAILURES + 1
        assert ingress.answerer.circuits.states()["draft_verify"] == "open"

        ingress.streams["draft_verify"] = real
        clock.now += PAUSE_SECONDS
        trial = await answered(ingress, prompt())
        assert (trial.method, trial.reason) == ("draft_verify", "preferred")
        meanwhile = await answered(ingress, prompt())
        assert meanwhile.method == "ngram"
        await spoken(trial)
        await spoken(meanwhile)
        assert ingress.answerer.circuits.states()["draft_verify"] == "closed"

    @pytest.mark.usefixtures("clock")
    async def test_answers_that_break_off_count(self, ingress):
        ingress.streams["draft_verify"] = broken(RuntimeError("gone"), after=1)
        for _ in range(CONSECUTIVE_FAILURES):
            [*_, last] = await spoken(await answered(ingress, prompt()))
            assert last.stats.method == "ngram"
        assert ingress.answerer.circuits.states()["draft_verify"] == "open"

    @pytest.mark.usefixtures("clock")
    async def test_full_lines_and_hopeless_deadlines_and_clients_that_leave_do_not(self, ingress):
        reached, closed, often = [], [], range(1, CONSECUTIVE_FAILURES + 2)
        asked = prompt(pinned="draft_verify", deadline_seconds=0.001)
        for stream in (broken(EngineBusyError("full")), silent([], [])):
            ingress.streams["draft_verify"] = stream
            for _ in often:
                with pytest.raises(ApiError):
                    await answered(ingress, asked)
        ingress.streams["draft_verify"] = silent(reached, closed)
        for times in often:
            leaving = asyncio.create_task(answered(ingress, prompt()))
            await until(lambda times=times: len(reached) == times)
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
        assert closed == reached
        assert ingress.answerer.circuits.states()["draft_verify"] == "closed"

    @pytest.mark.usefixtures("clock")
    async def test_a_pin_on_a_method_that_rests_is_503(self, ingress):
        ingress.streams["naive"] = broken(RuntimeError("gone"))
        asked = HELLO | {"model": "tiny:naive"}
        for _ in range(CONSECUTIVE_FAILURES):
            await ingress.http.post("/v1/chat/completions", json=asked)
        response = await ingress.http.post("/v1/chat/completions", json=asked)
        assert response.status_code == 503
        assert "naive is disabled after repeated failures" in response.json()["error"]["message"]
        assert response.headers["retry-after"] == "1"


class TestDisconnect:
    @pytest.mark.parametrize("stream", [True, False])
    async def test_a_client_that_leaves_ends_the_work_within_one_step(self, ingress, steps, stream):
        """Left as Ray Serve leaves it: the request's task is cancelled."""
        steps.held = lambda _: steps.begun > 2
        client = Client(ingress.app)
        client.send(json.dumps(LONG | {"stream": stream}).encode())
        await until(steps.holding.is_set)
        client.task.cancel()
        await asyncio.gather(client.task, return_exceptions=True)
        await ends_within_one_step(ingress, steps)


# Three digits, then a terminal that nothing matches: too many beginnings for the check to try all.
STUCK = {"kind": "lark", "text": "start: /[0-9]{3}/ T\nT: /a/ & /b/"}
ASKED = HELLO | {"max_tokens": 40, "grammar": STUCK}


async def test_a_grammar_that_gets_stuck_is_a_400(ingress):
    calls = reached(ingress)
    for _ in range(18):
        response = await ingress.http.post("/v1/chat/completions", json=ASKED)
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["code"] == "request_fault"
        assert error["message"].startswith("grammar: the answer cannot follow it after 3 tokens")
    assert len(calls) == 18, "another method was asked"
    assert set(ingress.answerer.circuits.states().values()) == {"closed"}
    assert all(circuit == Circuit() for circuit in ingress.answerer.circuits._circuits.values())
    assert ingress.engine.load().healthy
    await posted(ingress, "/v1/chat/completions", HELLO)


@pytest.mark.parametrize("model", ["tiny", "tiny:naive", "tiny:ngram"])
async def test_a_stream_that_gets_stuck_ends_with_an_error_event(ingress, model):
    calls = reached(ingress)
    body = ASKED | {"model": model, "stream": True}
    response = await ingress.http.post("/v1/chat/completions", json=body)
    if response.status_code == 400:  # the machine was busy, and the fault came with the first chunk
        last = response.json()
    else:
        *_, last = [json.loads(event) for event in events(response) if event != "[DONE]"]
    assert last["error"]["code"] == "request_fault"
    assert len(calls) == 1
    assert set(ingress.answerer.circuits.states().values()) == {"closed"}


async def test_others_in_the_batch_go_on(ingress):
    plain = HELLO | {"temperature": 0, "max_tokens": 30}
    alone = await posted(ingress, "/v1/chat/completions", plain)
    stuck = [ingress.http.post("/v1/chat/completions", json=ASKED) for _ in range(3)]
    answer, *refused = await asyncio.gather(posted(ingress, "/v1/chat/completions", plain), *stuck)
    assert {response.status_code for response in refused} == {400}
    assert answer["choices"] == alone["choices"]


async def test_health_says_that_no_method_may_answer(ingress):
    """Until the pause is over: then a trial may go through, which only traffic brings."""
    clock = ingress.answerer.circuits._clock = Clock()
    for method in ingress.streams:
        ingress.answerer.circuits._circuits[method] = Circuit(opened=clock())
    response = await ingress.http.get("/health")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    ingress.answerer.circuits._circuits["ngram"] = Circuit()
    assert (await ingress.http.get("/health")).json()["methods"] == ["ngram"]
    ingress.answerer.circuits._circuits["ngram"] = Circuit(opened=clock())
    clock.now += PAUSE_SECONDS
    assert (await ingress.http.get("/health")).json()["methods"] == sorted(ingress.streams)
    await posted(ingress, "/v1/chat/completions", HELLO)
    assert "closed" in ingress.answerer.circuits.states().values()
