"""Bounds of a request's headers, kept while they arrive."""

import json
from typing import Any

from uvicorn.protocols.http import auto
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from deployments.errors import ApiError
from deployments.guard.haproxy import MAX_HEADER_BYTES, MAX_HEADERS

_LINGER_SECONDS = 5.0


def bound_headers() -> None:
    """Let every server that uvicorn starts in this process keep the bounds."""
    auto.AutoHTTPProtocol = BoundedHeaders


class _TooLargeError(Exception):
    """A request's headers are out of bounds."""


class BoundedHeaders(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1 with at most MAX_HEADERS headers and MAX_HEADER_BYTES bytes of them.

    The request's line and trailers count too. Beyond, the answer is 431 and the connection ends.
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
            # These are trailers, and the request has an answer of its own.
            self.transport.close()
            return
        error = ApiError(
            431,
            f"the headers are larger than {MAX_HEADER_BYTES} bytes or {MAX_HEADERS} lines",
            code="headers_too_large",
        )
        body = json.dumps(error.body()).encode()
        self.transport.write(
            STATUS_LINE[431]
            + b"content-type: application/json\r\nconnection: close\r\n"
            + b"content-length: %d\r\n\r\n" % len(body)
            + body
        )
        # Closed with unread bytes, the connection would be reset before the client has the answer.
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)
