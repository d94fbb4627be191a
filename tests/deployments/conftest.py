"""The parts of one ingress over a real engine on tiny models, without Ray."""

import threading
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
import yaml
from served import service_config
from service_here import ingress_here

from deployments.api.prompt_reader import PromptReader
from deployments.artifacts import served_encoder
from deployments.guard.middleware import guarded
from deployments.learning import feedback, link, storage
from deployments.metrics import Metrics
from schemas import GuardConfig
from workers.loader import load_engine


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A store may be as slow as a busy machine's disk."""
    monkeypatch.setattr(storage, "CALL_SECONDS", 120.0)


@pytest.fixture(autouse=True)
def stored_at_once(monkeypatch):
    """What is learned is stored with every exchange, and every version of the table is fetched."""
    monkeypatch.setattr(feedback, "STORE_SECONDS", 0.0)
    monkeypatch.setattr(feedback, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(link, "TABLE_SECONDS", 0.0)


@pytest.fixture(scope="session")
def base_config(tiny_bundle, tmp_path_factory):
    return service_config(tmp_path_factory.mktemp("service"), tiny_bundle)


@pytest.fixture
def config(base_config, tmp_path):
    """The same artifacts, with a state folder of the test's own."""
    settings = base_config.feedback.model_copy(update={"state_uri": str(tmp_path / "state")})
    return base_config.model_copy(update={"feedback": settings})


@pytest.fixture(scope="session")
def engine(base_config, tiny_bundle):
    names = [method.name for method in base_config.methods]
    made = load_engine(names, tiny_bundle, base_config.engine, "replica-1")
    yield made
    made.close()


@pytest.fixture(scope="session")
def encoder(base_config):
    made = served_encoder(base_config)
    assert made is not None
    return made


@pytest.fixture(scope="session")
def reader(base_config, tiny_bundle):
    names = [m.name for m in base_config.methods]
    return PromptReader(tiny_bundle, names, base_config.engine, base_config.http)


@pytest.fixture
async def ingress(config, engine, encoder, reader):
    made = await ingress_here(config, engine, encoder, reader)
    async with made.http:
        yield made


@pytest.fixture
def openai_client(ingress):
    """The openai package, with nothing changed but its address."""
    return openai.AsyncOpenAI(base_url="http://test/v1", api_key="none", http_client=ingress.http)


@pytest.fixture
def behind_guard(ingress, tmp_path):
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
def steps(ingress, monkeypatch):
    made = Steps(ingress.engine._scheduler._step)
    monkeypatch.setattr(ingress.engine._scheduler, "_step", made)
    yield made
    made.free.set()
