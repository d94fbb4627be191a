"""What a request causes ends that request alone: no circuit opens, nobody else is asked."""

import asyncio
import json

import pytest
from asking import HELLO, Clock, events, posted, reached

from deployments.request.circuits import PAUSE_SECONDS, Circuit

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
