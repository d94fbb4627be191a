"""Requests that are forwarded to a server, against replayed answers of a real one."""

import asyncio
import threading

import pytest
from decoding import request
from replayed_server import (
    EVENTS,
    FIRST,
    PATIENCE,
    PROMPT,
    STREAM,
    TOKENS,
    answered,
    loaded,
    whole,
    written,
)

from workers.engine import EngineBusyError, EngineRefusedError


async def test_an_answer_has_the_servers_tokens_and_counts(bundle, engine):
    answer = await answered(engine)
    assert answer.tokens == TOKENS
    assert answer.text == bundle.backend_tokenizer().decode(TOKENS)
    assert (answer.finish, answer.error) == ("length", None)
    stats = answer.stats
    # 9 events; of the last step's 4 accepted tokens the length cut off 2, and the target's own
    assert (stats.output_tokens, stats.target_steps, stats.accepted_tokens) == (24, 9, 15)
    assert stats.drafted_tokens == EVENTS[-1]["metrics"]["speculative_decoding"]["num_draft_tokens"]
    assert stats.queue_seconds == EVENTS[-1]["metrics"]["queue_time_ms"] / 1000
    assert sum(answer.drafted) == 15
    assert engine.load().running == 0


async def test_a_request_carries_its_method_scope_and_every_parameter(server, engine):
    given = {"temperature": 0.5, "top_k": 3, "seed": 7, "stop": ("x",), "logit_bias": {}}
    asked = request("vllm_eagle3", PROMPT, scope="tenant a", max_tokens=9, **given)
    async for _ in engine.generate(asked):
        pass
    [(path, _, body)] = server.asked
    assert path == "/v1/completions"
    assert body["vllm_xargs"] == {"specadapt_method": "eagle3"}
    assert body["cache_salt"] == "tenant a"
    assert (body["prompt"], body["model"], body["max_tokens"]) == (list(PROMPT), "demo", 9)
    assert (body["temperature"], body["top_k"], body["seed"]) == (0.5, 3, 7)
    assert (body["stop"], body["top_p"], body["min_p"]) == (["x"], 1.0, 0.0)
    assert body["return_token_ids"]
    assert body["stream_options"] == {"include_usage": True}


async def test_an_answer_that_must_not_be_kept_says_so(server, engine):
    async for _ in engine.generate(request("vllm_eagle3", PROMPT, kept=False)):
        pass
    assert server.asked[0][2]["vllm_xargs"] == {"specadapt_method": "eagle3", "specadapt_kept": 0}


async def test_a_key_of_a_file_is_sent(server, bundle, tmp_path):
    (tmp_path / "key").write_text("secret\n")
    engine = loaded(server, bundle, openai={"api_key_file": tmp_path / "key"})
    await answered(engine)
    engine.close()
    assert server.asked[0][1] == "Bearer secret"


@pytest.mark.parametrize("content", ["", " \n", "secret\nsecret", "secret\x00", "s\u00e9cret"])
def test_a_file_without_a_usable_key_is_refused_and_not_shown(server, bundle, tmp_path, content):
    file = tmp_path / "key"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match="must hold one line") as refused:
        loaded(server, bundle, openai={"api_key_file": file})
    assert "cret" not in str(refused.value)


def endless(server, stream):
    """Have the server send a stream without an end; return what is set once the client leaves."""
    closed = threading.Event()

    def plan(exchange):
        exchange.begin()
        exchange.send(stream)
        if exchange.wait_until_closed():
            closed.set()

    server.plan = plan
    return closed


async def test_text_ends_at_our_stop_string_and_the_connection_with_it(server, bundle, engine):
    closed = endless(server, STREAM[: STREAM.rindex(b"data:", 0, STREAM.index(b'"usage"'))])
    text = bundle.backend_tokenizer().decode(TOKENS)
    answer = await answered(engine, max_tokens=200, min_tokens=0, stop=(text[5:9],))
    assert (answer.finish, answer.text) == ("stop", text[:5])
    assert answer.stats.target_steps == 0, "without the server's counts nothing is learned"
    assert await asyncio.to_thread(closed.wait, PATIENCE)


async def test_a_line_separator_within_an_event_ends_no_line(server, engine):
    event = {"choices": [{"token_ids": [1276], "text": "a\u2028b", "finish_reason": "length"}]}
    server.plan = whole(written(event))
    assert (await answered(engine)).tokens == [1276]


async def test_closing_the_answer_closes_the_connection(server, engine):
    closed = endless(server, written(FIRST, done=False))
    answer = engine.generate(request("vllm_eagle3", PROMPT, max_tokens=24))
    assert (await anext(answer)).token_ids == (1276,)
    assert engine.load().running_by_method == {"vllm_eagle3": 1}
    await answer.aclose()
    assert await asyncio.to_thread(closed.wait, PATIENCE)
    assert engine.load().requests == {}


@pytest.mark.parametrize(
    ("field", "sampling"),
    [
        ("logprobs", {"logprobs": 0}),
        ("prompt_logprobs", {"prompt_logprobs": 1}),
        ("logit_bias", {"logit_bias": {5: 1.0}}),
        ("min_p", {"min_p": 0.1, "temperature": 1.0}),
    ],
)
async def test_what_cannot_be_forwarded_is_refused_by_name(server, engine, field, sampling):
    with pytest.raises(EngineRefusedError, match=f"^{field}: "):
        await answered(engine, **sampling)
    assert not server.asked


async def test_a_begun_answer_and_an_unknown_method_are_refused(server, engine):
    begun = request("vllm_eagle3", PROMPT, answered=(1276,), max_tokens=24)
    with pytest.raises(EngineRefusedError, match=r"^answered_token_ids: "):
        await anext(engine.generate(begun))
    with pytest.raises(EngineRefusedError, match="'vllm_draft' is not served here"):
        await answered(engine, "vllm_draft")
    assert not server.asked


async def test_a_full_line_is_busy(server, bundle):
    engine = loaded(server, bundle, max_batch=1, max_waiting=0)
    server.plan = lambda exchange: exchange.wait_until_closed()
    first = asyncio.ensure_future(anext(engine.generate(request("vllm_naive", PROMPT))))
    while not engine.load().requests:
        await asyncio.sleep(0)
    with pytest.raises(EngineBusyError, match="max_waiting is 0"):
        await answered(engine)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    engine.close()


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (
            {},
            {"openai": {"model": "x"}},
            "engine.openai.model: .* does not serve 'x'; models: demo",
        ),
        ({}, {"max_context": 512}, "engine.max_context: .* takes 384 tokens at most, got 512"),
        ({}, {"methods": ("vllm_suffix",)}, "does not serve suffix; methods: adaptive, eagle3, me"),
        ({"specadapt_method": "other"}, {}, "methods: .* names no methods"),
        ({}, {"openai": {"api_key_file": "/no/key"}}, "engine.openai.api_key_file: /no/key"),
        ({}, {"methods": ("naive",)}, "servers have methods of engine vllm only"),
    ],
)
def test_a_server_that_does_not_fit_is_refused(server, bundle, change, settings, message):
    for old, new in change.items():
        server.metrics(old, new)
    with pytest.raises(ValueError, match=message):
        loaded(server, bundle, **settings)


async def test_a_plain_server_has_one_method(server, bundle):
    server.metrics("specadapt_method", "other")
    engine = loaded(server, bundle, methods=("vllm_eagle3",))
    assert (await answered(engine)).tokens == TOKENS
    engine.close()


def test_the_load_is_the_servers(server, bundle):
    model = '{engine="0",model_name="demo"} '
    server.metrics(f"vllm:num_requests_running{model}0.0", f"vllm:num_requests_running{model}3.0")
    server.metrics(f"vllm:num_requests_waiting{model}0.0", f"vllm:num_requests_waiting{model}2.0")
    server.metrics(f"vllm:kv_cache_usage_perc{model}0.0", f"vllm:kv_cache_usage_perc{model}0.25")
    engine = loaded(server, bundle)
    load = engine.load()
    engine.close()
    assert (load.running, load.waiting, load.healthy) == (3, 2, True)
    assert load.free_slots == 139776 * 3 // 4
    assert load.mean_batch == 3.0
