"""Replicas of a method follow its work, on a real Ray Serve."""

import threading

import httpx
import pytest
from ray import serve
from running_service import CALL_SECONDS, START_SECONDS, until
from served import service_config

from deployments.run import APPLICATION

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(deploy, port, tiny_bundle, tmp_path_factory):
    """Plain decoding with one replica, or two where there is more than a moment's work."""
    folder = tmp_path_factory.mktemp("scaling")
    config = service_config(folder, tiny_bundle, ("naive",), http={"port": port})
    [naive] = config.methods
    naive = naive.model_copy(
        update={
            "max_replicas": 2,
            "target_seconds": 1.0,
            "upscale_delay_seconds": 0.0,
            "downscale_delay_seconds": 0.0,
        }
    )
    return deploy(config.model_copy(update={"methods": (naive,)}))


def replicas():
    states = serve.status().applications[APPLICATION].deployments["naive"].replica_states
    return states.get("RUNNING", 0)


def test_a_second_replica_comes_with_the_work_and_goes_with_it(service):
    assert replicas() == 1
    service.method("naive", "set_extra_target_forwards", "naive", 100)
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 200}
    busy = threading.Event()
    busy.set()

    def ask():
        while busy.is_set():
            httpx.post(
                f"{service.url}/v1/chat/completions",
                json=body | {"ignore_eos": True},
                timeout=CALL_SECONDS,
            )

    clients = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        until(lambda: replicas() == 2, START_SECONDS)
    finally:
        busy.clear()
        service.method("naive", "set_extra_target_forwards", "naive", 0)
    for client in clients:
        client.join(CALL_SECONDS)
    until(lambda: replicas() == 1, START_SECONDS)
    assert service.chat().is_success
