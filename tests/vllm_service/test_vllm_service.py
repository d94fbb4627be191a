"""Serve two vLLM methods of the demo bundle with the real application, a replica each."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import ray
from conftest_bundle import DEMO
from ray import serve
from running_service import HTTP, START_SECONDS, deployed, until
from served import preferring, service_config

from deployments.run import APPLICATION, start_local_ray, with_free_port
from workers.bundle import load_bundle

pytestmark = pytest.mark.vllm

FAVOURITE, PLAIN = "vllm_ngram", "vllm_naive"
GREEDY = {"model": "demo", "temperature": 0}
LONG = GREEDY | {"ignore_eos": True, "messages": [{"role": "user", "content": "Tell a story"}]}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Serve with a favourite that stays the same, whatever is learned.

    Ray kills the process group of a dead replica. Without that, our engines' processes have to end
    by themselves, as they do where a raylet dies too.
    """
    pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")
    config = service_config(
        tmp_path_factory.mktemp("vllm"),
        load_bundle(DEMO),
        (FAVOURITE, PLAIN),
        engine={
            "device": "cpu",
            "max_batch": 4,
            "max_context": 2048,
            "vllm": {"enforce_eager": True},
        },
        router={"weights": preferring(FAVOURITE, (FAVOURITE, PLAIN))},
        http={"port": 0},
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_process_group_cleanup_enabled", "0")
        start_local_ray(cpus=4)
    yield deployed(with_free_port(config))
    serve.shutdown()
    ray.shutdown()


def children(service, method):
    """Return by name the processes that vLLM has started in a method's replica."""
    replica = psutil.Process(service.method(method, "placement")["pid"])
    return {child.name(): child for child in replica.children(recursive=True)}


def long(service, tokens):
    url = f"{service.url}/v1/chat/completions"
    return HTTP.post(url, json=LONG | {"max_tokens": tokens}, timeout=START_SECONDS)


def who(response):
    assert response.status_code == 200, response.text
    return response.headers["x-specadapt-method"], response.headers["x-specadapt-reason"]


def text(response):
    return response.json()["choices"][0]["message"]["content"]


def test_an_answer_and_the_method_that_gave_it(service):
    answer = service.chat(**GREEDY, max_tokens=48)
    assert who(answer) == (FAVOURITE, "preferred")
    said = answer.json()["usage"]["speculative"]
    assert said["method"] == FAVOURITE
    assert said["target_steps"] > 0
    plain = service.chat(**GREEDY | {"model": f"demo:{PLAIN}"}, max_tokens=48)
    assert who(plain) == (PLAIN, "pinned")
    assert text(plain) == text(answer)


@pytest.mark.parametrize("asked", [{"min_p": 0.1}, {"logit_bias": {"7": -5}}])
def test_what_vllm_refuses_with_speculation_is_served_without(service, asked):
    body = {"model": "demo", "temperature": 0.8, "max_tokens": 8} | asked
    assert who(service.chat(**body)) == (PLAIN, "constraint")
    pinned = service.chat(**body | {"model": f"demo:{FAVOURITE}"})
    assert pinned.status_code == 400
    assert pinned.json()["error"]["param"] == next(iter(asked))


def running(service):
    """Return the running sequences of the favourite's replica, None without a recent report."""
    loads = service.routing()["loads"]
    return next((load["running"] for load in loads if FAVOURITE in load["methods"]), None)


@pytest.mark.slow
def test_an_engine_that_dies_is_replaced_and_its_requests_go_elsewhere(service):
    before = children(service, FAVOURITE)
    text_before = text(long(service, 400))
    with ThreadPoolExecutor(1) as client:
        asked = client.submit(long, service, 400)
        until(lambda: running(service) == 1)
        os.kill(before["VLLM::EngineCore"].pid, signal.SIGKILL)
        answer = asked.result()
    assert who(answer) == (PLAIN, "failover")
    assert text(answer) == text_before
    assert who(service.chat(**GREEDY)) == (PLAIN, "failover")
    until(lambda: who(service.chat(**GREEDY)) == (FAVOURITE, "preferred"), START_SECONDS)
    until(lambda: not any(process.is_running() for process in before.values()))


def test_nothing_is_left_behind(service):
    """Neither by a replica that is killed, which closes no engine, nor by an application's end."""
    replica = psutil.Process(service.method(PLAIN, "placement")["pid"])
    killed, ended = children(service, PLAIN).values(), children(service, FAVOURITE).values()
    assert min(len(killed), len(ended)) >= 2
    replica.kill()
    until(lambda: not any(process.is_running() for process in killed))
    assert all(process.is_running() for process in ended)
    serve.delete(APPLICATION, _blocking=False)  # a replica that starts meanwhile may take a minute
    until(lambda: not any(process.is_running() for process in ended), START_SECONDS)
