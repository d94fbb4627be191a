"""The endpoints over a real engine, without Ray: bodies, events, headers, errors."""

import gzip
import json

import httpx
import numpy as np
import pytest
from asking import HELLO, events

from deployments.api.introspection import table_summary
from deployments.artifacts import served_table


async def test_a_chat_answer(ingress):
    response = await ingress.http.post("/v1/chat/completions", json=HELLO)
    assert response.status_code == 200
    body = response.json()
    assert body["object"] == "chat.completion"
    assert body["model"] == "tiny"
    [choice] = body["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] in ("stop", "length")
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["speculative"]["method"] == response.headers["x-specadapt-method"]
    assert usage["speculative"]["mean_acceptance_length"] >= 1.0
    assert usage["speculative"]["routing_ms"] > 0
    assert usage["speculative"]["engine_first_token_ms"] > 0
    assert response.headers["x-specadapt-cluster"] in ("0", "1")
    assert response.headers["x-specadapt-reason"] == "preferred"


async def test_streaming_says_the_same(ingress):
    asked = HELLO | {"temperature": 0}
    whole = (await ingress.http.post("/v1/chat/completions", json=asked)).json()
    asked |= {"stream": True, "stream_options": {"include_usage": True}}
    response = await ingress.http.post("/v1/chat/completions", json=asked)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-specadapt-method"] == "draft_verify"
    *chunks, done = events(response)
    assert done == "[DONE]"
    chunks = [json.loads(chunk) for chunk in chunks]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1])
    assert text == whole["choices"][0]["message"]["content"]
    assert chunks[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    plain = await ingress.http.post("/v1/chat/completions", json=HELLO | {"stream": True})
    assert "usage" not in plain.text, "it comes only where it is asked for"


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
async def test_what_a_request_leaves_open_is_the_bundles(ingress, monkeypatch, path):
    """At temperature 0 an answer comes twice; at the default, 1, it would be another."""
    monkeypatch.setattr(ingress.reader, "sampling_defaults", {"temperature": 0.0})
    prompt = {"messages": HELLO["messages"]} if path.startswith("chat") else {"prompt": "hello"}
    asked = {"model": "tiny:naive", "max_tokens": 32, "ignore_eos": True} | prompt
    answers = [(await ingress.http.post(f"/v1/{path}", json=asked)).json() for _ in range(2)]
    assert answers[0]["choices"] == answers[1]["choices"]
    explained = await ingress.http.post("/v1/routing/explain", json={"prompt": "hello"})
    assert explained.json()["temperature"] == 0.0


async def test_models_are_listed(ingress):
    listed = (await ingress.http.get("/v1/models")).json()
    names = [model["id"] for model in listed["data"]]
    assert names == ["tiny", "tiny:naive", "tiny:draft_verify", "tiny:ngram", "static-minilm"]
    assert (await ingress.http.get("/v1/models/tiny:ngram")).json()["id"] == "tiny:ngram"
    assert (await ingress.http.get("/v1/models/gpt-4")).status_code == 404


async def test_the_table_in_force_is_shown(ingress):
    body = (await ingress.http.get("/v1/routing")).json()
    assert (body["fit_id"], body["version"], body["clusters"]) == ("small", 0, 2)
    of_all = dict.fromkeys(["greedy", "low", "high"], "draft_verify")
    assert body["assignment"] == [of_all, of_all]
    assert body["evidence"][0]["acceptance"]["draft_verify"] == pytest.approx(2.5)
    assert body["feedback"] == {
        "connected": True,
        "problem": None,
        "epoch": 1,
        "observations_waiting": 0,
        "observations_dropped": 0,
    }
    assert [load["replica"] for load in body["loads"]] == ["replica-1"]


def test_how_the_service_differs_from_what_was_measured_is_shown_by_method(config):
    table = served_table(config)
    learned = {
        name: (np.arange(len(table.methods)) + more) / 20
        for more, name in enumerate(("step_ratio", "batch_ratio", "prefill_ratio", "loss"))
    }
    shown = table_summary(table.with_live(**learned))
    for array, values in learned.items():
        assert shown[f"live_{array}"] == dict(zip(table.methods, values.tolist(), strict=True))


async def test_a_decision_is_explained_without_answering(ingress):
    response = await ingress.http.post("/v1/routing/explain", json={"prompt": "reverse a list"})
    body = response.json()
    assert body["method"] == "draft_verify"
    assert body["ranked"][0] == "draft_verify"
    assert set(body["predicted_seconds"]) == {"naive", "draft_verify", "ngram"}
    assert ingress.link.waiting == 0


async def test_the_page_needs_nothing_from_elsewhere(ingress):
    response = await ingress.http.get("/")
    assert response.headers["content-type"].startswith("text/html")
    assert "http://" not in response.text
    assert "https://" not in response.text


def conversation(text):
    return HELLO | {"messages": [{"role": "user", "content": text}]}


BAD = {
    "malformed": (b'{"model": ', 400, "invalid_json", None),
    "unknown model": (HELLO | {"model": "gpt-4"}, 404, "model_not_found", "model"),
    "too long": (conversation("many words " * 500), 400, "context_length_exceeded", "messages"),
    "far too long": (conversation("x" * 1_900_000), 400, "context_length_exceeded", "messages"),
    "10 MB": (b"x" * 10_000_000, 413, "body_too_large", None),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_input_gets_openais_error_and_the_service_lives_on(ingress, case):
    body, status, code, param = BAD[case]
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = await ingress.http.post("/v1/chat/completions", content=content)
    assert response.status_code == status
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param)
    assert (await ingress.http.post("/v1/chat/completions", json=HELLO)).status_code == 200


async def test_a_large_body_is_refused_while_it_is_read(ingress):
    read = []

    async def parts():
        for _ in range(100):
            read.append(1)
            yield b"x" * 100_000

    response = await ingress.http.post("/v1/chat/completions", content=parts())
    assert response.status_code == 413
    assert len(read) < 30


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("GET", "/v1/chat/completions", 405), ("POST", "/health", 405)],
)
async def test_unknown_paths_answer_in_the_same_form(ingress, method, path, status):
    response = await ingress.http.request(method, path)
    assert response.status_code == status
    assert "message" in response.json()["error"]
    assert ("allow" in response.headers) == (status == 405)


async def test_an_unforeseen_failure_is_an_error_object_too(ingress, monkeypatch):
    async def fails(_):
        raise KeyError("a programming error")

    monkeypatch.setattr(ingress.answerer, "answers", fails)
    response = await ingress.http.post("/v1/chat/completions", json=HELLO)
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal"


READ = ["/", "/web/page.js", "/health", "/openapi.json", "/v1/models", "/v1/models/tiny"]


@pytest.mark.parametrize("path", [*READ, "/v1/routing", "/admin/config"])
async def test_head_is_answered_as_get(ingress, path):
    got, headed = await ingress.http.get(path), await ingress.http.head(path)
    assert headed.status_code == got.status_code == 200
    for header in ("content-type", "content-length"):
        if path != "/v1/routing":  # it says how old things are
            assert headed.headers[header] == got.headers[header]


@pytest.mark.parametrize(
    "path", ["/v1/models/", "/health/", "/v1/chat/completions/", "/web/", "//v1/models", "/nothing"]
)
@pytest.mark.parametrize("host", ["evil.example", "[", "a b"])
async def test_nobody_is_sent_to_a_host_that_the_client_names(ingress, path, host):
    for method in ("GET", "POST", "HEAD"):
        response = await ingress.http.request(method, f"http://test{path}", headers={"host": host})
        assert response.status_code == 404
        assert "location" not in response.headers
        assert "evil" not in response.text
        if method != "HEAD":
            assert "/v1/models" in response.json()["error"]["message"]
            assert "/admin" not in response.json()["error"]["message"]


async def test_the_page_of_a_prefix_is_in_its_folder(ingress):
    transport = httpx.ASGITransport(ingress.app, root_path="/live")
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        sent = await http.get("/live", headers={"host": "evil.example"})
        assert (sent.status_code, sent.headers["location"]) == (307, "live/")
        assert (await http.get("/live/")).status_code == 200
        assert (await http.get("/live/health")).status_code == 200


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/chat/completions", HELLO),
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/routing/explain", {"prompt": "a"}),
    ],
)
async def test_a_model_that_only_embeds_says_where_it_does(ingress, path, asked):
    response = await ingress.http.post(path, json=asked | {"model": "static-minilm"})
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "embeds" in error["message"]
    assert "/v1/embeddings" in error["message"]
    assert "does not exist" not in error["message"]


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, identity", "\xe9"])
async def test_a_compressed_body_is_named_as_such(ingress, coding):
    headers = [(b"content-encoding", coding.encode("latin-1"))]
    body = gzip.compress(json.dumps(HELLO).encode())
    for path in ("/v1/chat/completions", "/v1/embeddings", "/admin/routing/rollback"):
        response = await ingress.http.post(path, content=body, headers=headers)
        assert response.status_code == 415
        assert "content-encoding" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-encoding": "identity"},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=utf-8"},
        {"content-type": "nonsense"},
    ],
)
async def test_json_is_read_whatever_it_is_called(ingress, headers):
    body = json.dumps(HELLO).encode()
    response = await ingress.http.post("/v1/chat/completions", content=body, headers=headers)
    assert response.status_code == 200


@pytest.mark.parametrize("length", ["9" * 19, "9" * 5000])
async def test_a_length_beyond_all_bounds_is_too_large(ingress, length):
    headers = {"content-length": length}
    response = await ingress.http.post("/v1/chat/completions", content=b"{}", headers=headers)
    assert response.status_code == 413
