"""The service without Ray: the ingress's application on a socket, its engine in this process."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn

from deployments.api.embeddings import Embeddings
from deployments.api.prompt_reader import PromptReader
from deployments.api.routes import HttpApi
from deployments.artifacts import embedding, portfolios, served_encoder, served_table
from deployments.learning.feedback import Feedback
from deployments.learning.link import FeedbackLink
from deployments.loads.board import LoadBoard
from deployments.loads.line import LoadsLine
from deployments.metrics import Metrics
from deployments.replica.method import merged
from deployments.request.answer import Answerer, Served
from deployments.request.refusals import Refusals
from ops.harness.running_service import free_port
from schemas import AppConfig
from workers.bundle import load_bundle
from workers.loader import load_engine


@contextmanager
def service_here(config: AppConfig) -> Iterator[str]:
    """The address of a service whose methods share one engine, once something listens there."""
    port = free_port()
    bundle = load_bundle(config.bundle)
    methods = tuple(method.name for method in config.methods)
    engine = load_engine(methods, bundle, config.engine)
    servers = []
    ready = threading.Event()

    async def serve():
        loads = LoadsLine(board, 60.0)
        link = FeedbackLink(served_table(config), connect, loads, 1e-6, 60.0, Metrics())
        await loads.fetch()
        await link.exchange()
        streams = dict.fromkeys(methods, lambda r, _whole: merged(engine.generate(r), lambda: 0.0))
        encoder = served_encoder(config)
        refusals = Refusals(portfolios(config))
        answerer = Answerer(
            Served(streams, refusals), link, config.router, embedding(encoder), Metrics()
        )
        reader = PromptReader(bundle, methods, config.engine)
        api = HttpApi(reader, answerer, Embeddings(encoder), link, Metrics(), config).app()
        server = uvicorn.Server(uvicorn.Config(api, port=port, log_level="warning"))
        servers.append(server)
        ready.set()
        await server.serve()

    async def connect():
        return Feedback(config)

    async def board():
        made = LoadBoard(3600.0)
        await made.report(engine.load())
        return made

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
    """The same address, once something listens there."""
    transport = httpx.HTTPTransport(retries=10)  # with growing pauses, about a minute in all
    with httpx.Client(transport=transport) as client:
        assert client.get(f"{url}/v1/models").status_code == httpx.codes.OK
    return url
