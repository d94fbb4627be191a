"""The real application on a Ray of the test session's own, with tiny models."""

from collections.abc import Callable, Iterator

import pytest
import ray
from ray import serve
from running_service import Service, deployed
from served import service_config

from deployments.run import APPLICATION, start_local_ray, with_free_port
from schemas import AppConfig
from workers.bundle import Bundle


@pytest.fixture(scope="session")
def deploy() -> Iterator[Callable[[AppConfig], Service]]:
    """Deploys on a Ray of the session's own: four logical CPUs, and two GPUs that are only a
    number to Ray."""
    start_local_ray(cpus=4, gpus=2)
    yield deployed
    serve.shutdown()
    ray.shutdown()


@pytest.fixture(scope="session")
def port() -> int:
    """Serve listens on one port for as long as its Ray lives."""
    return with_free_port(AppConfig(http={"port": 0})).http.port


@pytest.fixture(scope="module")
def service(
    deploy: Callable[[AppConfig], Service],
    port: int,
    tiny_bundle: Bundle,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    """Learns quickly: a short memory and much exploration, so that a test sees it learn. No other
    method is so much better that a conversation would leave its own."""
    config = service_config(
        tmp_path_factory.mktemp("e2e"),
        tiny_bundle,
        router={"exploration": 0.2, "half_life": 10.0, "conversation_margin": 1e6},
        http={"port": port},
    )
    yield deploy(config)
    serve.delete(APPLICATION)
