"""Middleware of Ray Serve's HTTP proxies."""

from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.guard.header_bounds import bound_headers
from deployments.transport import bypass_proxies

IMPORT_PATH = "deployments.guard.proxy:middlewares"
"""For RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH, in the environment of every node."""
ROUTES = "/-/routes"
OUR_OWN = b"x-specadapt-"
_MULTIPLEXED = b"serve_multiplexed_model_id"


def middlewares() -> list[Middleware]:
    """Return what a proxy, or an ingress behind HAProxy, puts before itself.

    Ray calls it where it is about to start such a server, which then bounds its headers.
    """
    bypass_proxies()
    bound_headers()
    return [Middleware(ClosedRoutes), Middleware(PlainHeaders)]


class ClosedRoutes:
    """ASGI middleware that closes Ray's `/-/routes`, which would name the applications without a
    key. Load balancers ask `/-/healthz` only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")[len(scope.get("root_path", "")) :]  # as Ray's proxy reads it
        closed = scope["type"] == "http" and path == ROUTES
        await (PlainTextResponse("not found", 404) if closed else self._app)(scope, receive, send)


class PlainHeaders:
    """ASGI middleware that drops headers whose value is not printable ASCII, and Ray's model id.

    Ray's proxy decodes several headers, such as `x-request-id`, as UTF-8 and writes them into the
    response as Latin-1: it answers 500 where that fails. The ingress checks its own ones. Ray keeps
    every model id that it reads, before any key is checked, for as long as the proxy lives.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = scope["headers"]
            kept = [(name, value) for name, value in headers if _is_plain(name, value)]
            if len(kept) < len(headers):
                scope = {**scope, "headers": kept}
        await self._app(scope, receive, send)


def _is_plain(name: bytes, value: bytes) -> bool:
    if name.replace(b"-", b"_") == _MULTIPLEXED:
        return False
    return name.startswith(OUR_OWN) or all(0x20 <= byte < 0x7F or byte == 0x09 for byte in value)
