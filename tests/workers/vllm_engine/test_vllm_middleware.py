"""What the middleware of `vllm serve` makes of requests, in a FastAPI server without vLLM."""

import json
from types import SimpleNamespace

import httpx
import pytest
from fastapi import FastAPI, Request
from prometheus_client import generate_latest

from workers.vllm_engine.drafting.portfolio import REQUESTS
from workers.vllm_engine.middleware import XARGS, RequestMethods, with_method

SALTS = {"naive": None, "ngram": None, "eagle3": "eagle3", "adaptive": "adaptive"}


def asked(body, default: str = "adaptive"):
    return json.loads(with_method(XARGS, SALTS, default, json.dumps(body).encode()))


def served() -> FastAPI:
    """A server that answers with the body that it got."""
    server = FastAPI()
    requests = {REQUESTS: {"default": "adaptive", "salts": SALTS}}
    server.state.vllm_config = SimpleNamespace(additional_config=requests)
    server.add_middleware(RequestMethods)

    @server.post("/{path:path}")
    async def echo(request: Request):
        return await request.json()

    return server


async def post(path, **content):
    transport = httpx.ASGITransport(served())
    async with httpx.AsyncClient(transport=transport, base_url="http://vllm") as client:
        return await client.post(path, **content)


def test_a_request_without_a_method_has_the_default_and_its_salt():
    body = asked({"prompt": "é", "vllm_xargs": None, "n": 2})
    assert body.pop("vllm_xargs").pop("specadapt_method") == "adaptive"
    assert body.pop("cache_salt")
    assert body == {"prompt": "é", "n": 2}


def test_methods_without_kv_share_a_tenants_cache_and_others_have_their_own():
    def salt(method: str, tenant: str | None = None):
        extra = {"specadapt_method": method}
        given = {} if tenant is None else {"cache_salt": tenant}
        return asked({"vllm_xargs": extra, **given}).get("cache_salt")

    assert salt("naive") is salt("ngram") is None
    assert salt("naive", "a") == salt("ngram", "a") == "a"
    salts = [salt(m, t) for m in ("eagle3", "adaptive") for t in (None, "a", "b", "x" * 128)]
    salts += [salt("naive", tenant) for tenant in ("eagle3", "adaptive")]
    assert len(set(salts)) == 10
    assert all(len(one) <= 128 for one in salts), "vLLM takes no longer one"


def test_past_answers_are_a_tenants_own_and_an_adapters():
    wishes = ({}, {"cache_salt": "a"}, {"model": "law"}, {"model": "law", "cache_salt": "a"})
    scopes = [asked(one)["vllm_xargs"]["specadapt_scope"] for one in (*wishes, *wishes)]
    assert scopes[:4] == scopes[4:]
    assert len(set(scopes)) == 4


@pytest.mark.parametrize("method", ["magic", ["eagle3"], 1, None, {}])
def test_an_unknown_method_is_refused(method):
    with pytest.raises(ValueError, match="is not served; methods: naive, ngram, eagle3, adaptive"):
        asked({"vllm_xargs": {"specadapt_method": method}})


def test_a_request_cannot_set_what_the_engine_reads():
    for name in ("specadapt_predicted", "specadapt_scope", "specadapt_request"):
        with pytest.raises(ValueError, match=f"{name} is unknown"):
            asked({"vllm_xargs": {name: ["a"]}})


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b'{"vllm_xargs": 3}', b"[" * 100_000])
def test_a_body_that_vllm_refuses_is_left_as_it_is(body):
    assert with_method(XARGS, SALTS, "adaptive", body) == body


def test_a_cache_salt_of_half_a_character_is_a_salt():
    body = {"vllm_xargs": {"specadapt_method": "eagle3"}}
    assert asked(body | {"cache_salt": "\ud800"})["cache_salt"] != asked(body)["cache_salt"]


@pytest.mark.parametrize("salt", ["", 3, [], {}])
def test_a_cache_salt_that_vllm_refuses_is_left_as_it_is(salt):
    assert asked({"cache_salt": salt})["cache_salt"] == salt


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "path", ["/v1/completions", "/prefix/v1/messages", "/v1/chat/completions", "/v1/responses%0A"]
)
async def test_a_body_in_pieces_and_utf_16_gets_a_method(path):
    async def pieces():
        for byte in json.dumps({"a": "é"}, ensure_ascii=False).encode("utf-16"):
            yield bytes([byte])

    got = (await post(path, content=pieces())).json()
    assert got["a"] == "é"
    assert got["vllm_xargs"]["specadapt_method"] == "adaptive"


@pytest.mark.asyncio
async def test_a_request_of_tokens_has_its_method_among_the_sampling_params():
    body = {"token_ids": [1], "sampling_params": {"max_tokens": 2}}
    got = (await post("/inference/v1/generate", json=body)).json()
    assert got["sampling_params"].pop("extra_args")["specadapt_method"] == "adaptive"
    assert got.pop("cache_salt")
    assert got == body == (await post("/v1/embeddings", json=body)).json()
    wrong = {"sampling_params": 3}
    assert (await post("/inference/v1/generate", json=wrong)).json() == wrong


@pytest.mark.asyncio
async def test_a_refusal_is_the_servers_answer():
    refused = await post("/v1/completions", json={"vllm_xargs": {"specadapt_method": "magic"}})
    assert refused.status_code == 400
    assert "vllm_xargs.specadapt_method: 'magic' is not served" in refused.json()["detail"]


@pytest.mark.asyncio
async def test_the_api_key_is_checked_before_the_body_is_read():
    """vLLM's check is inside the middleware."""

    async def unauthorized(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body"})

    async def body():
        pytest.fail("the body was read")

    answers = []

    async def send(message):
        answers.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "app": served()}
    await RequestMethods(unauthorized)(scope, body, send)
    assert answers[0]["status"] == 401


@pytest.mark.asyncio
async def test_a_client_that_leaves_while_it_sends_is_told_to_the_server():
    messages = [
        {"type": "http.disconnect"},
        {"type": "http.request", "body": b"{", "more_body": True},
    ]

    async def receive():
        return messages.pop()

    async def app(_scope, receive, _send):
        got.append(await receive())

    got = []
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "app": served()}
    await RequestMethods(app)(scope, receive, None)
    assert got == [{"type": "http.disconnect"}]


async def scraped(taken) -> str:
    """A scrape of /metrics. taken: the engine's call that counts."""
    server = served()
    core = SimpleNamespace(call_utility_all_async=taken)
    server.state.engine_client = SimpleNamespace(engine_core=core)
    server.get("/metrics")(lambda: generate_latest().decode())
    transport = httpx.ASGITransport(server)
    async with httpx.AsyncClient(transport=transport, base_url="http://vllm") as client:
        return (await client.get("/metrics")).json()


@pytest.mark.asyncio
async def test_a_scrape_names_the_methods_and_counts_what_every_engine_accepted():
    async def taken(*_call):
        worker = [("adaptive", "scraped", [1, 4, 3])]
        return [[worker], [worker]]

    page = await scraped(taken)
    for method in SALTS:
        assert f'specadapt_method{{method="{method}"}} 1.0' in page
    labels = '{drafter="scraped",method="adaptive"}'
    for counter, count in (("drafts", 2.0), ("draft_tokens", 8.0), ("accepted_tokens", 6.0)):
        assert f"specadapt_{counter}_total{labels} {count}" in page


@pytest.mark.asyncio
async def test_a_scrape_of_an_engine_that_does_not_count_succeeds_and_is_logged(caplog):
    async def taken(*_call):
        raise RuntimeError("engine gone")

    assert "specadapt_method" in await scraped(taken)
    assert "acceptance by drafter is not counted: RuntimeError('engine gone')" in caplog.text


def test_a_request_may_say_that_its_answer_must_not_be_kept():
    assert asked({"vllm_xargs": {"specadapt_kept": 0}})["vllm_xargs"]["specadapt_kept"] == 0
