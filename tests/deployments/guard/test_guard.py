"""Keys, limits and headers in front of a real engine's endpoints."""

import asyncio
import json
import logging
import warnings

import httpx
import pytest
import yaml
from asking import HELLO
from pydantic import ValidationError
from ray.exceptions import TaskCancelledError

from deployments.errors import line_full, request_fault
from deployments.guard.caller import Caller
from deployments.guard.key_file import hash_of
from deployments.guard.middleware import guarded
from deployments.metrics import Metrics
from deployments.request.deadline import missed
from deployments.request.shedding import shed
from schemas import GuardConfig, LoadReport

KEYS = {
    "keys": [
        {"name": "app", "sha256": hash_of("app-key"), "tenant": "acme"},
        {
            "name": "meagre",
            "sha256": hash_of("meagre-key"),
            "limits": {"tokens_per_minute": 1, "requests_per_minute": 100},
        },
        {
            "name": "few",
            "sha256": hash_of("few-key"),
            "limits": {"requests_per_minute": 6, "concurrent_requests": 3},
        },
        {"name": "root", "sha256": hash_of("root-key"), "admin": True},
    ],
    "tenants": {"acme": {"requests_per_minute": 1000}},
}
ORIGIN = "https://chat.example.com"


def client(app, key=None):
    headers = {"authorization": f"Bearer {key}"} if key else {}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers)


@pytest.fixture
def app(ingress, tmp_path):
    file = tmp_path / "keys.yaml"
    file.write_text(yaml.safe_dump(KEYS))
    return guarded(ingress.app, GuardConfig(keys_file=file, cors_origins=(ORIGIN,)), Metrics())


async def test_only_accepted_keys_are_answered(app):
    async with client(app, "app-key") as known:
        response = await known.post("/v1/chat/completions", json=HELLO)
        assert response.status_code == 200
        assert (await known.get("/v1/models")).status_code == 200
    for key in (None, "guessed", hash_of("app-key")):
        async with client(app, key) as stranger:
            response = await stranger.post("/v1/chat/completions", json=HELLO)
            assert response.status_code == 401
            assert response.json()["error"]["code"] == "invalid_api_key"
            assert response.headers["www-authenticate"] == "Bearer"
            assert (await stranger.get("/v1/routing")).status_code == 401
            for path in ("/health", "/", "/web/page.js", "/openapi.json"):
                assert (await stranger.get(path)).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_is_no_failure(ingress, monkeypatch, caplog, stream):
    """Ray's proxy says so by an error where the app asks what else the client sends."""
    metrics = Metrics()
    counted = []
    monkeypatch.setattr(metrics.refused, "inc", lambda **tags: counted.append(tags))
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

    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    path = "/v1/chat/completions"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
    scope |= {"headers": headers, "query_string": b"", "http_version": "1.1", "scheme": "http"}
    await app(scope, receive, send)
    assert begun.is_set()
    assert not counted
    assert "unexpected failure" not in caplog.text


async def test_an_admins_key_is_for_admin_alone(app):
    async with client(app, "root-key") as root:
        assert (await root.get("/v1/models")).status_code == 403
        assert (await root.get("/admin/nothing")).status_code == 404
    async with client(app, "app-key") as known:
        assert (await known.get("/admin/nothing")).status_code == 403


@pytest.mark.parametrize("prefix", ["/live", "/admin", "/web", "/v1/admin"])
async def test_a_route_prefix_changes_nobodys_rights(app, prefix):
    """Ray's proxy leaves the prefix in the path and names it in `root_path`."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, root_path=prefix)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:

        async def statuses(path):
            asked = [{"authorization": f"Bearer {key}-key"} for key in ("no", "app", "root")]
            return [(await http.get(prefix + path, headers=one)).status_code for one in asked]

        for path in ("/health", "/", "/web/page.js", "/openapi.json"):
            assert await statuses(path) == [200, 200, 200]
        assert await statuses("/v1/models") == [401, 200, 403]
        assert await statuses("/admin/nothing") == [401, 403, 404]
        assert await statuses("/live/health") == [401, 404, 403]


async def test_without_a_key_file_everybody_may_ask_but_nobody_administers(ingress):
    app = guarded(ingress.app, GuardConfig(), Metrics())
    async with client(app) as anybody:
        assert (await anybody.post("/v1/chat/completions", json=HELLO)).status_code == 200
        assert (await anybody.get("/admin/nothing")).status_code == 403
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, root_path="/live")
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as anybody:
        assert (await anybody.post("/live/admin/routing/reset")).status_code == 403


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answers_tokens_count(app, stream):
    async with client(app, "meagre-key") as meagre:
        asked = HELLO | {"stream": stream}
        assert (await meagre.post("/v1/chat/completions", json=asked)).status_code == 200
        response = await meagre.post("/v1/chat/completions", json=asked)
    assert response.status_code == 429
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert "key meagre: tokens_per_minute is 1" in error["message"]
    assert int(response.headers["retry-after"]) > 60


EMBEDDED = {"model": "all-MiniLM-L6-v2", "input": ["a", "b", "c", "d", "e"]}
BATCHES = {
    "choices": ("/v1/chat/completions", HELLO | {"n": 4}, 400, "n"),
    "choices of one prompt": (
        "/v1/completions",
        {"model": "tiny", "prompt": ["a"], "n": 4},
        400,
        "n",
    ),
    "prompts": ("/v1/completions", {"model": "tiny", "prompt": ["a", "b"], "n": 2}, 400, "prompt"),
    "texts, one at a time": ("/v1/embeddings", EMBEDDED, 200, None),
    "texts": ("/v1/embeddings", EMBEDDED | {"input": ["a"] * 7}, 400, "input"),
}


@pytest.mark.parametrize("case", BATCHES)
async def test_a_batch_is_as_many_requests_as_it_holds(app, monkeypatch, ingress, case):
    path, asked, status, param = BATCHES[case]
    if status == 400:  # it is refused before anything is done for it
        monkeypatch.setattr(ingress.reader, "chat", None)
        monkeypatch.setattr(ingress.reader, "completion", None)
    async with client(app, "few-key") as few:
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
        ("/v1/embeddings", EMBEDDED),
        ("/v1/routing/explain", {"prompt": "Where does this go?"}),
        ("/v1/completions", {"model": "tiny", "prompt": "hello", "max_tokens": 1}),
    ],
)
async def test_the_tokens_of_everything_that_is_read_count(app, path, asked):
    async with client(app, "meagre-key") as meagre:
        assert (await meagre.post(path, json=asked)).status_code == 200
        again = await meagre.post(path, json=asked)
    assert again.status_code == 429
    assert "tokens_per_minute is 1" in again.json()["error"]["message"]


async def test_tokens_are_charged_before_the_work_and_given_back_without_an_answer(
    app, ingress, monkeypatch
):
    """Of two prompts at once the second finds the first one's tokens spent."""
    begun = []

    async def refuses(asked):
        begun.append(asked)
        async with client(app, "meagre-key") as second:
            assert (await second.post("/v1/chat/completions", json=HELLO)).status_code == 429
        raise line_full()

    monkeypatch.setattr(ingress.answerer, "answers", refuses)
    async with client(app, "meagre-key") as meagre:
        for _ in range(2):
            response = await meagre.post("/v1/chat/completions", json=HELLO)
            assert response.json()["error"]["code"] == "server_busy"
    assert len(begun) == 2


@pytest.mark.parametrize("error", [missed(started=False), request_fault("no token may follow")])
async def test_what_ends_by_the_requests_own_wish_is_charged(app, ingress, monkeypatch, error):
    """Short deadlines, or grammars that lead nowhere, would have prompts read for nothing."""

    async def fails(_):
        raise error

    monkeypatch.setattr(ingress.answerer, "answers", fails)
    async with client(app, "meagre-key") as meagre:
        first = await meagre.post("/v1/chat/completions", json=HELLO)
        again = await meagre.post("/v1/chat/completions", json=HELLO)
    assert (first.status_code, again.status_code) == (error.status, 429)


async def test_nothing_is_begun_for_a_prompt_beyond_the_limit(app, monkeypatch):
    """A coroutine that nobody awaits is a line in the log for every refused request."""

    def full(*_):
        raise line_full()

    monkeypatch.setattr(Caller, "read", full)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        async with client(app, "app-key") as asking:
            response = await asking.post("/v1/chat/completions", json=HELLO)
    assert response.status_code == 429
    assert not told


@pytest.mark.parametrize("origin", ["https://chat.example.com/", "chat.example.com", ""])
def test_what_no_browser_calls_an_origin_is_refused(origin):
    with pytest.raises(ValidationError, match="cors_origins"):
        GuardConfig(cors_origins=(origin,))


async def test_browsers_are_told_what_a_page_may_do(app):
    async with client(app) as browser:
        page = await browser.get("/")
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["x-frame-options"] == "DENY"
        asked = {"origin": ORIGIN, "access-control-request-method": "POST"}
        granted = await browser.options("/v1/chat/completions", headers=asked)
        assert granted.status_code == 200
        assert granted.headers["access-control-allow-origin"] == ORIGIN
        asked["origin"] = "https://elsewhere.example.com"
        refused = await browser.options("/v1/chat/completions", headers=asked)
        assert "access-control-allow-origin" not in refused.headers


async def test_every_request_is_logged_under_its_id_without_its_words(app, caplog):
    with caplog.at_level(logging.INFO, "specadapt.access"):
        async with client(app, "app-key") as known:
            given = {"x-request-id": "mine-1"}
            response = await known.post("/v1/chat/completions", json=HELLO, headers=given)
            await known.get("/v1/models", headers={"x-request-id": "x" * 200})
    first, second = (json.loads(record.message) for record in caplog.records[-2:])
    usage = response.json()["usage"]
    assert first["request_id"] == "mine-1"
    assert first["answered_by"] == response.headers["x-specadapt-method"]
    assert (first["key"], first["tenant"], first["status"]) == ("app", "acme", 200)
    assert first["tokens"] == usage["total_tokens"]
    assert second["request_id"] == "x" * 128
    assert "hello" not in caplog.text
    assert "app-key" not in caplog.text


def load(waiting, healthy=True):
    return LoadReport(
        replica=f"r{waiting}",
        methods=("naive",),
        running=8,
        waiting=waiting,
        outstanding_tokens=0,
        free_slots=0,
        healthy=healthy,
        time=0.0,
    )


def test_low_priorities_make_room_first():
    from deployments.errors import ApiError

    shed("low", [load(0), load(0)], 0)
    shed("low", [load(3), load(1)], 10)
    for priority, waiting in (("low", 5), ("normal", 15)):
        shed(priority, [load(waiting - 1), load(0), load(10, healthy=False)], 10)
        with pytest.raises(ApiError) as refused:
            shed(priority, [load(waiting), load(0), load(10, healthy=False)], 10)
        assert (refused.value.status, refused.value.code) == (503, "shed")
        assert refused.value.headers()["retry-after"]
    shed("high", [load(10), load(10)], 10)
