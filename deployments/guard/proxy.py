"""What stands before Ray Serve's HTTP proxies: bounds of headers, and middleware."""

import json
from typing import Any

from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http import auto
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from deployments.errors import ApiError
from deployments.guard.haproxy import MAX_HEADER_BYTES, MAX_HEADERS
from deployments.transport import bypass_proxies

IMPORT_PATH = "deployments.guard.proxy:middlewares"
"""For RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH, in the environment of every node."""
ROUTES = "/-/routes"
OUR_OWN = b"x-specadapt-"
_FOR_RAY = (
    *(b"serve_multiplexed_model_id", b"x_session_id"),
    *(b"x_request_timeout_seconds", b"x_request_disconnect_disabled"),
)
_LINGER_SECONDS = 5.0


def middlewares() -> list[Middleware]:
    """Return what a proxy, or an ingress behind HAProxy, puts before itself.

    Ray calls it where it is about to start such a server, which then bounds its headers.
    """
    bypass_proxies()
    auto.AutoHTTPProtocol = BoundedHeaders
    return [Middleware(Spared)]


class Spared:
    """ASGI middleware that spares Ray's proxy what it would answer or keep without a key.

    `/-/routes`, which would name the applications, is closed: load balancers ask `/-/healthz` only.
    Headers that are not printable ASCII, and those that Ray obeys, are dropped. Ray's proxy decodes
    several headers, such as `x-request-id`, as UTF-8 and writes them into the response as Latin-1:
    it answers 500 where that fails. The ingress checks its own ones. Ray keeps every model id that
    it reads, before any key is checked, for as long as the proxy lives. With
    `x-request-disconnect-disabled` it lets the work go on for a client that has left.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] in ("http", "websocket"):
            path = scope["path"][len(scope.get("root_path", "")) :]  # as Ray's proxy reads it
            if path == ROUTES:
                app = PlainTextResponse("not found", 404)
            headers = scope["headers"]
            kept = [(name, value) for name, value in headers if _is_plain(name, value)]
            if len(kept) < len(headers):
                scope = {**scope, "headers": kept}
        await app(scope, receive, send)


def _is_plain(name: bytes, value: bytes) -> bool:
    if name.replace(b"-", b"_") in _FOR_RAY:
        return False
    return name.startswith(OUR_OWN) or all(0x20 <= byte < 0x7F or byte == 0x09 for byte in value)


class _TooLargeError(Exception):
    """A request's headers are out of bounds."""


class BoundedHeaders(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1 with at most MAX_HEADERS headers and MAX_HEADER_BYTES bytes of them.

    The request's line and trailers count too. Beyond, the response is 431 and the connection ends.
    Uvicorn itself collects headers without limit.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_bytes = 0
        # Bytes since the parser last told of something: it keeps an unfinished header to itself.
        self._silent_bytes = 0
        self._refused = False

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._silent_bytes += len(data)
        super().data_received(data)
        if self._silent_bytes > MAX_HEADER_BYTES and not self._refused:
            self._refuse()

    def on_message_begin(self) -> None:
        self._header_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + len(": \r\n"))
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            raise _TooLargeError

    def on_body(self, body: bytes) -> None:
        self._silent_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._silent_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._out_of_bounds():
            self._refuse()
        else:
            super().send_400_response(msg)

    def _count(self, size: int) -> None:
        self._silent_bytes = 0
        self._header_bytes += size
        if self._header_bytes > MAX_HEADER_BYTES:
            raise _TooLargeError

    def _out_of_bounds(self) -> bool:
        too_many = self.headers is not None and len(self.headers) > MAX_HEADERS
        return too_many or self._header_bytes > MAX_HEADER_BYTES

    def _refuse(self) -> None:
        self._refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            # These are trailers, and the request has a response of its own.
            self.transport.close()
            return
        error = ApiError(
            431,
            f"the headers are larger than {MAX_HEADER_BYTES} bytes or {MAX_HEADERS} lines",
            code="headers_too_large",
        )
        body = json.dumps(error.body()).encode()
        self.transport.write(
            STATUS_LINE[error.status]
            + b"content-type: application/json\r\nconnection: close\r\n"
            + b"content-length: %d\r\n\r\n" % len(body)
            + body
        )
        # Closed with unread bytes, the connection would be reset before the client has the
        # response.
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)
