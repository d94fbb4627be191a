"""The real application on a Ray of the test session's own, with tiny models."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import serve
from running_service import Service, deployed
from served import METHODS, fake_engines, preferring, service_config

from deployments.replica.placement import replica_options
from deployments.run import APPLICATION, start_local_ray, with_free_port
from schemas import AppConfig
from workers.bundle import Bundle

HERE = Path(__file__).parent
GPU_TYPE = "H100"
TEMPLATE = HERE.parents[1] / "configs" / "chatml-tools.jinja"
Deploy = Callable[..., Service]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First, so that other processes have tests for as long as these take; and of these tests those
    last that share an application, so that it is started once."""

    def place(item: pytest.Item) -> int:
        shares = "shared_config" in getattr(item, "fixturenames", ())
        return shares if HERE in item.path.parents else 2

    items.sort(key=place)


@pytest.fixture(scope="package")
def deploy() -> Iterator[Deploy]:
    """Deploys on a Ray of these tests' own: four logical CPUs, and four GPUs that are only a
    number to Ray. An application stays until one of other settings is asked for, or a test ends
    it. `step_seconds` asks for fake engines."""
    # Ray would read the type from a real GPU.
    os.environ["RAY_OVERRIDE_RESOURCES"] = json.dumps({f"accelerator_type:{GPU_TYPE}": 1})
    try:
        start_local_ray(cpus=4, gpus=4)
    finally:
        del os.environ["RAY_OVERRIDE_RESOURCES"]
    running: list[Service] = []

    def deploy(config: AppConfig, step_seconds: float | None = None) -> Service:
        ended = running and APPLICATION not in serve.status().applications
        if running and not ended and running[0].config == config:
            return running[0]
        if running:
            running.clear()
            serve.delete(APPLICATION)
        running.append(deployed(config) if step_seconds is None else faked(config, step_seconds))
        return running[0]

    yield deploy
    serve.shutdown()
    ray.shutdown()


def faked(config: AppConfig, step_seconds: float) -> Service:
    """Return the service with a fake engine in every replica."""

    def options(*given: Any) -> dict[str, Any]:
        made = replica_options(*given)
        made["ray_actor_options"]["runtime_env"]["env_vars"] |= fake_engines(step_seconds)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deployments.app.replica_options", options)
        return deployed(config)


@pytest.fixture(scope="session")
def port() -> int:
    """Serve listens on one port for as long as its Ray lives."""
    return with_free_port(AppConfig(http={"port": 0})).http.port


@pytest.fixture(scope="session")
def shared_config(
    port: int, tiny_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory
) -> AppConfig:
    """Whatever it has learned, draft_verify stays the favourite, and nothing is tried out. So no
    test depends on the ones before it. Two methods have a GPU. Answers are kept for training
    drafters."""
    methods = (*METHODS, "eagle3")
    config = service_config(
        tmp_path_factory.mktemp("e2e"),
        tiny_bundle,
        methods,
        feedback={"drafter_training": True},
        router={"exploration": 0.0, "weights": preferring("draft_verify", methods)},
        http={"port": port, "chat_template": TEMPLATE},
    )
    resources = {
        "draft_verify": {"num_gpus": 1.0, "accelerator_type": GPU_TYPE},
        "ngram": {"num_gpus": 1.0},
    }
    placed = [m.model_copy(update=resources.get(m.name, {})) for m in config.methods]
    return config.model_copy(update={"methods": tuple(placed)})


@pytest.fixture(scope="module")
def service(deploy: Deploy, shared_config: AppConfig) -> Service:
    """One for all modules that want no other settings."""
    return deploy(shared_config)


@pytest.fixture(scope="module")
def base(service: Service) -> str:
    """Where a client's package finds OpenAI's endpoints."""
    return f"{service.url}/v1"
