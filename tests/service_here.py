"""The service without Ray: an ingress's parts in this process, over a real engine."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from deployments.api.embeddings import Embeddings
from deployments.api.prompt_reader import PromptReader
from deployments.api.routes import HttpApi
from deployments.artifacts import copying, embedding, portfolios, served_encoder, served_table
from deployments.guard.haproxy import free_port
from deployments.learning.feedback import Feedback
from deployments.learning.link import FeedbackLink
from deployments.loads import LoadBoard, Loads, LoadsLine
from deployments.metrics import Metrics
from deployments.replica.method import merged
from deployments.request.answer import Answerer, Served
from deployments.request.calls import MethodStream
from deployments.request.refusals import Refusals
from router.embed import Encoder
from schemas import AppConfig, DecodeRequest
from workers.bundle import load_bundle
from workers.engine import Engine
from workers.loader import load_engine


@dataclass
class Ingress:
    """An ingress's parts, which a test may look at and replace; `http` asks its application."""

    config: AppConfig
    engine: Engine
    feedback: Feedback
    link: FeedbackLink
    loads: LoadsLine
    streams: dict[str, MethodStream]
    answerer: Answerer
    reader: PromptReader
    app: FastAPI
    http: httpx.AsyncClient


class ReplicaBoard(LoadBoard):
    """Hears from its one engine whenever it is asked: no report expires on a busy machine."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine

    async def loads(self, seen: int | None = None) -> Loads:
        await self.report(self._engine.load())
        return await super().loads(seen)


async def ingress_here(
    config: AppConfig, engine: Engine, encoder: Encoder | None, reader: PromptReader
) -> Ingress:
    """Put an ingress together whose methods share one engine."""
    feedback, board, metrics = Feedback(config), ReplicaBoard(engine), Metrics()

    async def connect() -> Feedback:
        return feedback

    async def connect_board() -> LoadBoard:
        return board

    def stream(request: DecodeRequest, whole: bool):
        return merged(engine.generate(request), lambda: float("inf") if whole else 0.0)

    loads = LoadsLine(connect_board)
    link = FeedbackLink(served_table(config), connect, loads, metrics)
    await loads.fetch()
    await link.exchange()
    streams: dict[str, MethodStream] = dict.fromkeys((m.name for m in config.methods), stream)
    served = Served(streams, Refusals(portfolios(config)), copying=copying(config))
    answerer = Answerer(served, link, config.router, embedding(encoder), metrics)
    app = HttpApi(reader, answerer, Embeddings(encoder), link, metrics, config).app()
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    http = httpx.AsyncClient(transport=transport, base_url="http://test")
    return Ingress(config, engine, feedback, link, loads, streams, answerer, reader, app, http)


@contextmanager
def service_here(
    config: AppConfig, served: Callable[[Ingress], Any] = lambda made: made.app
) -> Iterator[str]:
    """Serve a configuration on a socket of this machine; get its address once it listens. `served`
    may change the ingress, and returns what is served of it."""
    port = free_port()
    bundle = load_bundle(config.bundle)
    methods = tuple(method.name for method in config.methods)
    engine = load_engine(methods, bundle, config.engine)
    servers = []
    ready = threading.Event()

    async def serve():
        reader = PromptReader(bundle, methods, config.engine, config.http)
        made = await ingress_here(config, engine, served_encoder(config), reader)
        server = uvicorn.Server(uvicorn.Config(served(made), port=port, log_level="warning"))
        servers.append(server)
        ready.set()
        await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(300)
    try:
        yield listening(f"http://127.0.0.1:{port}")
    finally:
        servers[0].should_exit = True
        thread.join(30)
        engine.close()


def listening(url: str) -> str:
    """Wait until something listens at an address, and return it."""
    transport = httpx.HTTPTransport(retries=10)  # with growing pauses, about a minute in all
    with httpx.Client(transport=transport) as client:
        assert client.get(f"{url}/v1/models").status_code == httpx.codes.OK
    return url
