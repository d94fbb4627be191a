"""Servers that fail, each in its own way: replayed answers of a real one, and what breaks them."""

import json
import threading

import pytest
from replayed_server import (
    FIRST,
    PATIENCE,
    REFUSED,
    STREAM,
    TOKENS,
    answered,
    loaded,
    serving,
    whole,
    written,
)

from workers.engine import EngineBusyError, EngineRefusedError
from workers.openai_engine import server as server_module


@pytest.mark.parametrize(
    ("page", "told"),
    [
        *(("/health", (503, "dead")), ("/metrics", (503, "dead"))),
        ("/metrics", (200, "vllm:num_requests_running +Inf\n")),
    ],
)
def test_a_failed_server_is_unhealthy_until_it_is_back(server, bundle, monkeypatch, page, told):
    monkeypatch.setattr(server_module, "POLL_SECONDS", 0.01)
    engine = loaded(server, bundle)
    assert engine.load().healthy
    for content, healthy in ((told, False), (server.pages[page], True)):
        server.pages[page], waited = content, threading.Event()
        for _ in range(int(PATIENCE / 0.01)):
            if engine.load().healthy == healthy:
                break
            waited.wait(0.01)
        assert engine.load().healthy == healthy
    engine.close()
    assert not engine.load().healthy


def test_a_server_that_is_not_there_makes_an_unhealthy_engine(bundle):
    with serving() as gone:
        pass
    engine = loaded(gone, bundle)
    assert not engine.load().healthy
    engine.close()


def failures():
    """Each failure: what the server does before any token, or after the first, and the message."""
    first = written(FIRST, done=False)

    def stream(*parts):
        def plan(exchange):
            exchange.begin()
            for part in parts:
                exchange.send(part)
            exchange.end()

        return plan

    def broken(exchange):
        exchange.begin()
        exchange.send(first)
        exchange.reset()

    def status(code, body=b"{}", **headers):
        return lambda exchange: exchange.reply(code, body, **headers)

    error = {"error": {"message": "Internal server error", "code": 500}}
    unauthorized = json.dumps({"error": "Unauthorized"}).encode()
    away = status(307, location="http://elsewhere/v1")
    later = {"choices": [{"token_ids": [5], "finish_reason": "abort"}]}
    yield "reset at once", lambda exchange: exchange.reset(), "the connection broke", 0
    yield "unauthorized", status(401, unauthorized), 'status 401: {"error": "Unauthorized"}', 0
    yield "not found", status(404, b"no such page"), "status 404: no such page", 0
    yield "failed", status(500, json.dumps(error).encode()), "status 500: Internal server error", 0
    yield "down", status(503, b""), "status 503", 0
    yield "redirect", away, "redirect to http://elsewhere/v1; name it in engine.openai.urls", 0
    yield "no stream", status(200), "returned application/json instead of a stream", 0
    yield "empty", stream(b"data: [DONE]\n\n"), "ended after 0 tokens", 0
    yield "no json", stream(first, b"data: {\n\n"), "malformed event in its stream", 1
    yield "no object", stream(first, b"data: [1]\n\n"), "malformed event in its stream", 1
    yield "two answers", stream(written({"choices": [FIRST["choices"][0]] * 2})), "choices", 0
    yield "odd message", status(500, b'{"error": {"message": null}}'), "status 500: None", 0
    yield "no ids", stream(written({"choices": [{"text": "a"}]})), "choices.0.token_ids Field", 0
    yield "error event", stream(first, written(error)), "status 500: Internal server error", 1
    yield "refused late", stream(first, REFUSED), "min_p and logit_bias", 1
    yield "early end", stream(first), "ended after 1 tokens", 1
    yield "aborted", stream(first, written(later)), "finish_reason 'abort'", 1
    yield "reset later", broken, "the connection broke", 1
    yield "silent", lambda exchange: exchange.wait_until_closed(), "engine.stall_seconds", 0


@pytest.mark.parametrize(
    ("plan", "message", "tokens"), [pytest.param(*f[1:], id=f[0]) for f in failures()]
)
async def test_a_failure_ends_its_answer_and_no_other(server, bundle, plan, message, tokens):
    engine = loaded(server, bundle, stall_seconds=0.5 if "stall" in message else PATIENCE)

    def by_method(exchange):
        named = server.asked[-1][2]["vllm_xargs"]["specadapt_method"]
        (whole() if named == "naive" else plan)(exchange)

    server.plan = by_method
    answer = await answered(engine)
    assert (answer.finish, answer.tokens) == ("error", [1276] * tokens)
    assert answer.error.startswith(f"{server.url}: ")
    assert message in answer.error
    assert not answer.request_fault
    assert answer.stats.output_tokens == tokens
    assert engine.load().requests == {}
    assert (await answered(engine, "vllm_naive")).tokens == TOKENS
    engine.close()


async def test_a_refused_connection_is_a_failure(bundle):
    with serving() as gone:
        engine = loaded(gone, bundle)
    answer = await answered(engine)
    assert answer.finish == "error"
    assert "connection attempts failed" in answer.error
    engine.close()


@pytest.mark.parametrize("stream", [True, False])
async def test_what_the_server_refuses_is_the_requests_fault(server, engine, stream):
    """vLLM refuses with a status, or with 200 and an event if it finds the fault late."""
    refusal = b'{"error": {"message": "min_p and logit_bias", "code": 400}}'
    server.plan = whole(REFUSED) if stream else lambda exchange: exchange.reply(400, refusal)
    with pytest.raises(EngineRefusedError, match="min_p and logit_bias"):
        await answered(engine)
    assert engine.load().requests == {}


async def test_a_full_server_is_busy(server, engine):
    server.plan = lambda exchange: exchange.reply(429, b"full")
    with pytest.raises(EngineBusyError, match="full"):
        await answered(engine)


async def test_a_failure_after_the_last_token_costs_the_counts_only(server, engine):
    def plan(exchange):
        exchange.begin()
        exchange.send(STREAM[: STREAM.rindex(b"data:", 0, STREAM.index(b'"usage"'))])
        exchange.reset()

    server.plan = plan
    answer = await answered(engine)
    assert (answer.finish, answer.tokens) == ("length", TOKENS)
    assert answer.stats.target_steps == 0
