"""Requests as clients may word them: paths, hosts, encodings and types of bodies."""

import gzip
import json

import httpx
import pytest
from asking import HELLO

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
