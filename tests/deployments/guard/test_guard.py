"""Keys, limits and headers in front of a real engine's endpoints."""

import asyncio
import json
import logging
import warnings

import pytest
from asking import HELLO, Counted, scope
from observations import load
from pydantic import ValidationError
from ray.exceptions import TaskCancelledError

from deployments.api.answering import DEADLINE, FIRST, NO_LEARNING, TOKEN, shed
from deployments.errors import REQUEST_FAULT, ApiError, overloaded
from deployments.guard.caller import Caller
from deployments.guard.key_file import hash_of
from deployments.guard.middleware import guarded
from deployments.metrics import Metrics
from schemas import GuardConfig


def key(name, **fields):
    return {"name": name, "sha256": hash_of(f"{name}-key")} | fields


KEYS = {
    "keys": [
        key("app", tenant="acme"),
        key("meagre", limits={"tokens_per_minute": 1, "requests_per_minute": 100}),
        key("few", limits={"requests_per_minute": 6, "concurrent_requests": 3}),
        key("root", admin=True),
    ],
    "tenants": {"acme": {"requests_per_minute": 1000}},
}
ORIGIN = "https://chat.example.com"


@pytest.fixture
def client(behind_guard):
    """Make a client of the service with these keys."""
    return behind_guard(KEYS, cors_origins=(ORIGIN,))


async def test_only_accepted_keys_are_answered(client):
    async with client("app-key") as known:
        response = await known.post("/v1/chat/completions", json=HELLO)
        assert response.status_code == 200
        assert (await known.get("/v1/models")).status_code == 200
    for key in (None, "guessed", hash_of("app-key")):
        async with client(key) as stranger:
            response = await stranger.post("/v1/chat/completions", json=HELLO)
            assert response.status_code == 401
            assert response.json()["error"]["code"] == "invalid_api_key"
            assert response.headers["www-authenticate"] == "Bearer"
            assert (await stranger.get("/v1/routing")).status_code == 401
            for path in ("/health", "/", "/web/page.js", "/openapi.json"):
                assert (await stranger.get(path)).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_is_no_failure(ingress, caplog, stream):
    """Ray's proxy says so by an error where the app asks what else the client sends."""
    metrics = Metrics()
    metrics.refused = counted = Counted()
    app = guarded(ingress.app, GuardConfig(), metrics)
    body = json.dumps(HELLO | {"stream": stream, "max_tokens": 400, "ignore_eos": True}).encode()
    asked = iter([{"type": "http.request", "body": body, "more_body": False}])
    begun = asyncio.Event()

    async def receive():
        if (message := next(asked, None)) is not None:
            return message
        await begun.wait()
        raise TaskCancelledError

    async def send(message):
        if message["type"] == "http.response.body":
            begun.set()

    length = (b"content-length", b"%d" % len(body))
    await app(scope("/v1/chat/completions", length), receive, send)
    assert begun.is_set()
    assert not counted.tags
    assert "unexpected failure" not in caplog.text


async def test_an_admins_key_is_for_admin_alone(client):
    async with client("root-key") as root:
        assert (await root.get("/v1/models")).status_code == 403
        assert (await root.get("/admin/nothing")).status_code == 404
    async with client("app-key") as known:
        assert (await known.get("/admin/nothing")).status_code == 403


@pytest.mark.parametrize("prefix", ["/live", "/admin", "/web", "/v1/admin"])
async def test_a_route_prefix_changes_nobodys_rights(client, prefix):
    """Ray's proxy leaves the prefix in the path and names it in `root_path`."""
    async with client(prefix=prefix) as http:

        async def statuses(path):
            asked = [{"authorization": f"Bearer {key}-key"} for key in ("no", "app", "root")]
            return [(await http.get(prefix + path, headers=one)).status_code for one in asked]

        for path in ("/health", "/", "/web/page.js", "/openapi.json"):
            assert await statuses(path) == [200, 200, 200]
        assert await statuses("/v1/models") == [401, 200, 403]
        assert await statuses("/admin/nothing") == [401, 403, 404]
        assert await statuses("/live/health") == [401, 404, 403]


async def test_without_a_key_file_every_client_may_ask_but_none_administers(behind_guard):
    client = behind_guard()
    async with client() as anybody:
        assert (await anybody.post("/v1/chat/completions", json=HELLO)).status_code == 200
        assert (await anybody.get("/admin/nothing")).status_code == 403
    async with client(prefix="/live") as anybody:
        assert (await anybody.post("/live/admin/routing/reset")).status_code == 403


TEXT = {"model": "tiny", "prompt": "hello", "max_tokens": 1}
EMBEDDED = {"model": "static-minilm", "input": ["a", "b", "c", "d", "e"]}
BATCHES = {
    "choices": ("/v1/chat/completions", HELLO | {"n": 4}, 400, "n"),
    "choices of one prompt": ("/v1/completions", TEXT | {"prompt": ["a"], "n": 4}, 400, "n"),
    "prompts": ("/v1/completions", TEXT | {"prompt": ["a", "b"], "n": 2}, 400, "prompt"),
    "texts, one at a time": ("/v1/embeddings", EMBEDDED, 200, None),
    "texts": ("/v1/embeddings", EMBEDDED | {"input": ["a"] * 7}, 400, "input"),
}


@pytest.mark.parametrize("case", BATCHES)
async def test_a_batch_is_as_many_requests_as_it_holds(client, monkeypatch, ingress, case):
    path, asked, status, param = BATCHES[case]
    if status == 400:  # it is refused before anything is done for it
        monkeypatch.setattr(ingress.reader, "chat", None)
        monkeypatch.setattr(ingress.reader, "completion", None)
    async with client("few-key") as few:
        response = await few.post(path, json=asked)
        assert response.status_code == status, response.text
        if status == 400:
            assert response.json()["error"]["param"] == param
            assert "key few" in response.json()["error"]["message"]
        else:
            again = await few.post(path, json=asked)
            assert again.status_code == 429
            assert "requests_per_minute is 6" in again.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/chat/completions", HELLO),
        ("/v1/chat/completions", HELLO | {"stream": True}),
        ("/v1/embeddings", EMBEDDED),
        ("/v1/routing/explain", {"prompt": "Where does this go?"}),
        ("/v1/completions", TEXT),
    ],
)
async def test_the_tokens_of_everything_that_is_read_or_answered_count(client, path, asked):
    async with client("meagre-key") as meagre:
        assert (await meagre.post(path, json=asked)).status_code == 200
        again = await meagre.post(path, json=asked)
    assert again.status_code == 429
    error = again.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert "key meagre: tokens_per_minute is 1" in error["message"]
    assert int(again.headers["retry-after"]) > 60


async def test_tokens_are_charged_before_the_work_and_given_back_without_an_answer(
    client, ingress, monkeypatch
):
    """Of two prompts at once the second finds the first one's tokens spent."""
    begun = []

    async def refuses(asked):
        begun.append(asked)
        async with client("meagre-key") as second:
            assert (await second.post("/v1/chat/completions", json=HELLO)).status_code == 429
        raise overloaded("full")

    monkeypatch.setattr(ingress.answerer, "answers", refuses)
    async with client("meagre-key") as meagre:
        for _ in range(2):
            response = await meagre.post("/v1/chat/completions", json=HELLO)
            assert response.json()["error"]["code"] == "server_busy"
    assert len(begun) == 2


@pytest.mark.parametrize(
    "error", [ApiError(504, "late"), ApiError(400, "stuck", code=REQUEST_FAULT)]
)
async def test_what_ends_by_the_requests_own_wish_is_charged(client, ingress, monkeypatch, error):
    """Short deadlines, or grammars that lead nowhere, would have prompts read for nothing."""

    async def fails(_):
        raise error

    monkeypatch.setattr(ingress.answerer, "answers", fails)
    async with client("meagre-key") as meagre:
        first = await meagre.post("/v1/chat/completions", json=HELLO)
        again = await meagre.post("/v1/chat/completions", json=HELLO)
    assert (first.status_code, again.status_code) == (error.status, 429)


@pytest.mark.parametrize(
    ("path", "status", "fields"),
    [
        ("/tokenize", 200, {"prompt": "word " * 800}),
        ("/v1/messages/count_tokens", 400, {"messages": "MANY"}),
        ("/v1/chat/completions", 400, {"messages": "MANY"}),
        ("/v1/completions", 400, {"prompt": "word " * 800}),
    ],
)
async def test_what_reads_much_without_an_answer_is_charged(
    behind_guard, monkeypatch, path, status, fields
):
    """Here a microsecond counts as more than all that the key has in a minute."""
    monkeypatch.setattr("deployments.guard.caller.WORK_TOKENS", 1e12)
    one = key("one", limits={"tokens_per_minute": 5000})
    many = [{"role": "user", "content": "word " * 80}] * 10
    body = {"model": "tiny"} | {k: many if v == "MANY" else v for k, v in fields.items()}
    async with behind_guard({"keys": [one]})("one-key") as client:
        assert (await client.post(path, json=body)).status_code == status
        later = await client.post(path, json=body)
    assert later.status_code == 429, later.text


async def test_nothing_is_begun_for_a_prompt_beyond_the_limit(client, monkeypatch):
    """A coroutine that nobody awaits is a line in the log for every refused request."""

    def full(*_):
        raise overloaded("full")

    monkeypatch.setattr(Caller, "read", full)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        async with client("app-key") as asking:
            response = await asking.post("/v1/chat/completions", json=HELLO)
    assert response.status_code == 429
    assert not told


@pytest.mark.parametrize("origin", ["https://chat.example.com/", "chat.example.com", ""])
def test_what_no_browser_calls_an_origin_is_refused(origin):
    with pytest.raises(ValidationError, match="cors_origins"):
        GuardConfig(cors_origins=(origin,))


async def test_browsers_are_told_what_a_page_may_do(client):
    async with client() as browser:
        page = await browser.get("/")
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["x-frame-options"] == "DENY"
        headers = (DEADLINE, FIRST, TOKEN, NO_LEARNING, "x-stainless-os", "anthropic-beta")
        headers += ("anthropic-dangerous-direct-browser-access", "openai-organization")
        asked = {
            "origin": ORIGIN,
            "access-control-request-method": "POST",
            "access-control-request-headers": ", ".join(("authorization", *headers)),
        }
        granted = await browser.options("/v1/chat/completions", headers=asked)
        assert granted.status_code == 200
        assert granted.headers["access-control-allow-origin"] == ORIGIN
        asked["origin"] = "https://elsewhere.example.com"
        refused = await browser.options("/v1/chat/completions", headers=asked)
        assert "access-control-allow-origin" not in refused.headers


async def test_a_long_request_id_is_cut_before_it_is_logged(client, caplog):
    with caplog.at_level(logging.INFO, "specadapt.access"):
        async with client("app-key") as known:
            await known.get("/v1/models", headers={"x-request-id": "x" * 200})
    assert json.loads(caplog.records[-1].message)["request_id"] == "x" * 128


def test_low_priorities_make_room_first():
    ill = load(waiting=10, healthy=False)
    shed("low", [load()] * 2, 0)
    shed("low", [load(waiting=3), load(waiting=1)], 10)
    for priority, waiting in (("low", 5), ("normal", 15)):
        shed(priority, [load(waiting=waiting - 1), load(), ill], 10)
        with pytest.raises(ApiError) as refused:
            shed(priority, [load(waiting=waiting), load(), ill], 10)
        assert (refused.value.status, refused.value.code) == (503, "shed")
        assert refused.value.headers()["retry-after"]
    shed("high", [load(waiting=10)] * 2, 10)
