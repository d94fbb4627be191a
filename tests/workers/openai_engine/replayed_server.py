"""A real HTTP server on a local port that replays what a vLLM 0.32 server has answered.

recorded/: a stream of `specadapt vllm serve bundles/demo --methods ngram,medusa,eagle3` with the
method eagle3, its /v1/models and part of its /metrics, and the stream of a refused request.
"""

import json
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from decoding import Answer, decode
from stand_in import running

from schemas import EngineConfig
from schemas.config import OpenAIConfig
from workers.bundle import Bundle
from workers.loader import load_engine
from workers.openai_engine.engine import OpenAIEngine

RECORDED = Path(__file__).parent / "recorded"
STREAM = (RECORDED / "eagle3.sse").read_bytes()
REFUSED = (RECORDED / "refused.sse").read_bytes()
EVENTS = [json.loads(line[6:]) for line in STREAM.splitlines() if line.startswith(b"data: {")]
PROMPT = tuple(EVENTS[0]["choices"][0]["prompt_token_ids"])
TOKENS = [token for event in EVENTS for one in event["choices"] for token in one["token_ids"]]
PATIENCE = 30.0
METHODS = ("vllm_naive", "vllm_eagle3")
FIRST = {"id": "x", "choices": [{"index": 0, "text": "product", "token_ids": [1276]}]}


class Exchange(BaseHTTPRequestHandler):
    """One request; `server.plan` answers a completion through these methods."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status, text = self.server.pages.get(self.path, (404, "none"))
        self.reply(status, text.encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((self.path, self.headers.get("authorization"), body))
        self.close_connection = True
        self.server.plan(self)

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self) -> None:
        """Begin a stream."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def send(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def reset(self) -> None:
        """Break the connection off, so that the client reads an error and no end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.wfile.close = self.rfile.close = lambda: None

    def wait_until_closed(self) -> bool:
        """Return whether the client closes the connection."""
        self.connection.settimeout(PATIENCE)
        return self.connection.recv(1) == b""

    def log_message(self, *_: object) -> None:
        pass


def whole(stream: bytes = STREAM) -> Callable[[Exchange], None]:
    """Return the plan that sends a stream in pieces that do not end with its events."""

    def plan(exchange: Exchange) -> None:
        exchange.begin()
        for begin in range(0, len(stream), 100):
            exchange.send(stream[begin : begin + 100])
        exchange.end()

    return plan


def written(*events: object, done: bool = True) -> bytes:
    """Return events as a stream."""
    lines = [f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


class ReplayedServer(ThreadingHTTPServer):
    """asked: path, authorization and body of each completion. pages: status and text by path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.plan: Callable[[Exchange], None] = whole()
        self.asked: list[tuple[str, str | None, dict]] = []
        self.pages = {
            "/health": (200, ""),
            "/metrics": (200, (RECORDED / "metrics.txt").read_text()),
            "/v1/models": (200, (RECORDED / "models.json").read_text()),
        }
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def metrics(self, old: str, new: str) -> None:
        """Replace a part of the page of metrics."""
        text = self.pages["/metrics"][1]
        assert old in text
        self.pages["/metrics"] = (200, text.replace(old, new))

    def handle_error(self, *_: object) -> None:
        """Stay silent where a client is gone."""


def serving() -> AbstractContextManager[ReplayedServer]:
    """Run a server in a thread."""
    return running(ReplayedServer())


def loaded(
    server: ReplayedServer,
    bundle: Bundle,
    methods: Sequence[str] = METHODS,
    openai: dict[str, Any] | None = None,
    **settings: Any,
) -> OpenAIEngine:
    """Return an engine over the server."""
    given = OpenAIConfig(urls=(server.url,), **(openai or {}))
    config = EngineConfig(**{"max_context": 384, **settings}, openai=given)
    return load_engine(methods, bundle, config)


async def answered(engine: OpenAIEngine, method: str = "vllm_eagle3", **sampling: Any) -> Answer:
    """Return the answer to the recorded request, or to one with other parameters."""
    return await decode(engine, method, PROMPT, **{"max_tokens": 24, "min_tokens": 24, **sampling})
