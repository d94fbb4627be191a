"""The parts of one ingress over a real engine on tiny models, without Ray."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml
from fastapi import FastAPI
from served import service_config

from deployments.api.embeddings import Embeddings
from deployments.api.prompt_reader import PromptReader
from deployments.api.routes import HttpApi
from deployments.artifacts import embedding, portfolios, served_encoder, served_table
from deployments.guard.middleware import guarded
from deployments.learning import storage
from deployments.learning.feedback import Feedback
from deployments.learning.link import FeedbackLink
from deployments.loads.board import LoadBoard
from deployments.loads.line import LoadsLine
from deployments.metrics import Metrics
from deployments.replica.method import merged
from deployments.request.answer import Answerer, Served
from deployments.request.calls import MethodStream
from deployments.request.refusals import Refusals
from router.embed import Encoder
from schemas import AppConfig, DecodeRequest, GuardConfig
from workers.bundle import Bundle
from workers.engine import Engine
from workers.loader import load_engine


@dataclass
class Ingress:
    """What a test looks at and replaces."""

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


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may be as slow as a busy machine's disk."""
    monkeypatch.setattr(storage, "CALL_SECONDS", 120.0)


@pytest.fixture(scope="session")
def base_config(tiny_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> AppConfig:
    return service_config(tmp_path_factory.mktemp("service"), tiny_bundle)


@pytest.fixture
def config(base_config: AppConfig, tmp_path: Path) -> AppConfig:
    """The same artifacts, with a state folder of the test's own."""
    feedback = base_config.feedback.model_copy(
        update={"state_uri": str(tmp_path / "state"), "flush_seconds": 1e-6}
    )
    return base_config.model_copy(update={"feedback": feedback})


@pytest.fixture(scope="session")
def engine(base_config: AppConfig, tiny_bundle: Bundle) -> Iterator[Engine]:
    names = [method.name for method in base_config.methods]
    made = load_engine(names, tiny_bundle, base_config.engine, "replica-1")
    yield made
    made.close()


@pytest.fixture(scope="session")
def encoder(base_config: AppConfig) -> Encoder:
    made = served_encoder(base_config)
    assert made is not None
    return made


@pytest.fixture(scope="session")
def reader(base_config: AppConfig, tiny_bundle: Bundle) -> PromptReader:
    return PromptReader(tiny_bundle, [m.name for m in base_config.methods], base_config.engine)


@pytest.fixture
async def ingress(
    config: AppConfig, engine: Engine, encoder: Encoder, reader: PromptReader
) -> AsyncIterator[Ingress]:
    feedback, board, metrics = Feedback(config), LoadBoard(3600.0), Metrics()
    await board.report(engine.load())

    async def connect() -> Feedback:
        return feedback

    async def connect_board() -> LoadBoard:
        return board

    def stream(request: DecodeRequest, whole: bool):
        return merged(engine.generate(request), lambda: float("inf") if whole else 0.0)

    names = [method.name for method in config.methods]
    loads = LoadsLine(connect_board, 60.0)
    link = FeedbackLink(served_table(config), connect, loads, 1e-6, 60.0, metrics)
    await loads.fetch()
    await link.exchange()
    streams: dict[str, MethodStream] = dict.fromkeys(names, stream)
    refusals = Refusals(portfolios(config))
    answerer = Answerer(Served(streams, refusals), link, config.router, embedding(encoder), metrics)
    app = HttpApi(reader, answerer, Embeddings(encoder), link, metrics, config).app()
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        yield Ingress(config, engine, feedback, link, loads, streams, answerer, reader, app, http)


@pytest.fixture
def openai_client(ingress: Ingress) -> openai.AsyncOpenAI:
    """The openai package, with nothing changed but its address."""
    return openai.AsyncOpenAI(base_url="http://test/v1", api_key="none", http_client=ingress.http)


@pytest.fixture
def behind_guard(ingress: Ingress, tmp_path: Path) -> Callable[..., Callable[..., Any]]:
    """Put a guard before the service, whose keys are `keys` where they are given; get a maker of
    clients."""

    def guard(keys: Any = None, **settings: Any) -> Callable[..., httpx.AsyncClient]:
        if keys is not None:
            settings["keys_file"] = tmp_path / "keys.yaml"
            settings["keys_file"].write_text(yaml.safe_dump(keys))
        app = guarded(ingress.app, GuardConfig(**settings), Metrics())

        def client(key: str = "", prefix: str = "") -> httpx.AsyncClient:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False, root_path=prefix)
            headers = {"authorization": f"Bearer {key}"} if key else {}
            return httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers)

        return client

    return guard


class Steps:
    """In the place of the engine's decoding step: counts them as they begin. One for which `held`
    holds is not taken before `free` is set, so that all that a test does meanwhile happens within
    this step, however slow the machine."""

    def __init__(self, step: Callable[[list[Any]], None]) -> None:
        self._step = step
        self.anew()

    def anew(self) -> None:
        """Count from zero, and hold again."""
        self.begun = 0
        self.held: Callable[[list[Any]], bool] = lambda _: False
        self.holding, self.free = threading.Event(), threading.Event()

    def __call__(self, batch: list[Any]) -> None:
        self.begun += 1
        if self.held(batch):
            self.holding.set()
            self.free.wait(120)
        self._step(batch)


@pytest.fixture
def steps(ingress: Ingress, monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    made = Steps(ingress.engine._scheduler._step)
    monkeypatch.setattr(ingress.engine._scheduler, "_step", made)
    yield made
    made.free.set()
