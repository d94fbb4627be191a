"""What a proxy is spared of a request's headers, and which of Ray's own paths are closed."""

import pytest
import uvicorn
from ray.serve._private.http_util import validate_http_proxy_callback_return
from ray.serve._private.utils import call_function_from_import_path

from deployments.guard.proxy import IMPORT_PATH, BoundedHeaders, Spared

KEPT = [
    (b"authorization", b"Bearer sk-1"),
    (b"x-request-id", b"mine 7~"),
    (b"x-empty", b""),
    (b"x-specadapt-deadline-ms", "\u00b2".encode()),
]
DROPPED = [
    (b"x-request-id", b"caf\xe9"),
    (b"x-request-id", "日本".encode()),
    (b"x-session-id", b"\xff"),
    (b"x-request-timeout-seconds", b"\xff"),
    (b"traceparent", b"a\x00b"),
    (b"x-any", b"a\x7f"),
    (b"serve-multiplexed-model-id", b"mine"),
    (b"serve_multiplexed-model_id", b"mine"),
    (b"x-session-id", b"mine"),
    (b"x-request-timeout-seconds", b"0.1"),
    (b"x-request-disconnect-disabled", b"?1"),
]


async def seen(scope):
    scopes = []

    async def app(scope, _receive, _send):
        scopes.append(scope)

    await Spared(app)(scope, None, None)
    return scopes[0]


async def test_what_is_not_printable_or_ray_would_keep_is_dropped():
    scope = {"type": "http", "headers": [*KEPT, *DROPPED], "path": "/"}
    assert await seen(scope) == {**scope, "headers": KEPT}
    assert await seen({"type": "lifespan"}) == {"type": "lifespan"}


def test_ray_takes_them_by_their_import_path(monkeypatch):
    for name in ("no_proxy", "no_grpc_proxy"):  # which it sets
        monkeypatch.setenv(name, "")
    found = validate_http_proxy_callback_return(call_function_from_import_path(IMPORT_PATH))
    assert [one.cls for one in found] == [Spared]
    settings = uvicorn.Config(None)
    settings.load()
    assert settings.http_protocol_class is BoundedHeaders


@pytest.mark.parametrize(
    ("path", "root", "status"),
    [
        ("/-/routes", "", 404),
        ("/prefix/-/routes", "/prefix", 404),
        ("/-/healthz", "", 200),
        ("/v1/models", "", 200),
    ],
)
async def test_only_rays_list_of_routes_is_closed(path, root, status):
    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "root_path": root, "headers": []}
    await Spared(app)(scope, None, send)
    assert sent[0]["status"] == status
