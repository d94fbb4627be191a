"""Stand-ins for servers of others."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StandIn(BaseHTTPRequestHandler):
    """A server that answers as `get` and `post` say; they may note things in `server.seen`."""

    def do_GET(self) -> None:
        self.get()

    def do_POST(self) -> None:
        self.post(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def reply(self, body: Any, status: int = 200) -> None:
        """Answer with JSON, or with a text of events."""
        text = body if isinstance(body, str) else json.dumps(body)
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@contextmanager
def running(server: Any) -> Iterator[Any]:
    """Run a server in a thread until the block ends."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def listening(handler: type[StandIn]) -> Iterator[Any]:
    """Run a server with an `address` until the block ends."""
    made: Any = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    made.seen, made.address = [], f"http://127.0.0.1:{made.server_port}"
    with running(made) as server:
        yield server
