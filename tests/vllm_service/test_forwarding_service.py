"""Our service in front of vLLM servers that run the demo: it routes, the servers decode."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import ray
from conftest_bundle import DEMO
from decoding import assert_greedy
from ray import serve
from running_service import HTTP, START_SECONDS, deployed, until
from served import service_config
from vllm_server import ready, serving, vllm_serving

from deployments.run import start_local_ray, with_free_port
from ops.common.vllm_command import startable
from schemas import AppConfig
from workers.bundle import load_bundle
from workers.chat_template import encode_chat
from workers.vllm_engine.arguments import tokenizer_folder

pytestmark = [pytest.mark.slow, pytest.mark.vllm]

METHODS = ("vllm_eagle3", "vllm_naive", "vllm_ngram")
FLAGS = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "8"]
FLAGS += ["--max-num-batched-tokens", "256"]
TOKENS = 32
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2]}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Two servers of several methods; they start side by side."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(vllm_serving(tmp_path_factory, "ngram,eagle3", FLAGS))
            for _ in range(2)
        ]


@pytest.fixture(scope="module")
def deploy(tmp_path_factory):
    """Deploys a service with a replica for each server, on one port as long as Ray lives."""
    start_local_ray(cpus=4)
    port = with_free_port(AppConfig(http={"port": 0})).http.port

    def forwarding(urls, methods):
        count = {"min_replicas": len(urls), "max_replicas": len(urls)}
        config = service_config(
            tmp_path_factory.mktemp("service"),
            load_bundle(DEMO),
            methods,
            layout="shared",
            shared={"name": "shared", **count},
            engine={"openai": {"urls": [f"{url}/v1" for url in urls]}, "max_context": 512},
            http={"port": port},
        )
        return deployed(config)

    yield forwarding
    serve.shutdown()
    ray.shutdown()


@pytest.fixture(scope="module")
def service(servers, deploy):
    """Start the service and the servers together. Methods can be used once a server is ready."""
    return deploy([url for url, _ in servers], METHODS)


def reports(service):
    return {load["replica"] for load in service.routing()["loads"] if load["healthy"]}


def asked(url):
    """How many requests the server has ended."""
    lines = HTTP.get(f"{url}/metrics").text.splitlines()
    ended = [line for line in lines if line.startswith("vllm:request_success_total")]
    return sum(float(line.rpartition(" ")[2]) for line in ended)


def complete(service, model, prompt, **fields):
    body = {"model": model, "prompt": prompt, "temperature": 0, "max_tokens": TOKENS, **fields}
    body |= {"return_token_ids": True, "ignore_eos": True}
    return HTTP.post(f"{service.url}/v1/completions", json=body, timeout=START_SECONDS)


def test_answers_are_those_of_plain_decoding_until_the_servers_die(service, servers):
    bundle = load_bundle(DEMO)
    message = [{"role": "user", "content": "Say it twice: a b c d a b c d"}]
    prompt = encode_chat(bundle.tokenizer(), message, add_generation_prompt=True)
    for method in METHODS:
        answer = complete(service, f"demo:{method}", prompt)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-specadapt-method"] == method
        [choice] = answer.json()["choices"]
        assert_greedy(bundle, prompt, choice["token_ids"], TOKENS, ignore_eos=True)
        counted = answer.json()["usage"]["speculative"]
        assert (counted["target_steps"] == TOKENS) == (method == "vllm_naive"), counted

    routed = service.chat(model="demo", temperature=0, max_tokens=8)
    assert routed.status_code == 200, routed.text
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    formed = service.chat(model="demo:vllm_eagle3", response_format=form, max_tokens=TOKENS)
    assert json.loads(formed.json()["choices"][0]["message"]["content"])["a"] in (1, 2)
    refused = service.chat(model="demo:vllm_eagle3", logprobs=True)
    assert refused.status_code == 400
    assert "logprobs: engine.openai" in refused.text
    until(lambda: service.load("vllm_naive")["free_slots"] > 0)

    dying, living = servers
    before = [reports(service), *(asked(url) for url, _ in servers)]
    engine = service.config.engine.model_copy(update={"stall_seconds": 50.0})
    deployed(service.config.model_copy(update={"engine": engine}))
    until(lambda: len(reports(service) - before[0]) == 2 == len(reports(service)), START_SECONDS)
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda _: complete(service, "demo", prompt).status_code, range(16))
        assert set(answers) == {200}
    after = [asked(url) for url, _ in servers]
    assert all(now > then for now, then in zip(after, before[1:], strict=True)), (before, after)

    url = f"{service.url}/v1/completions"
    body = {"model": "demo", "prompt": prompt, "max_tokens": 400, "ignore_eos": True}
    body |= {"stream": True}
    with ExitStack() as stack:
        streams = [
            stack.enter_context(HTTP.stream("POST", url, json=body, timeout=START_SECONDS))
            for _ in range(4)
        ]
        lines = [stream.iter_lines() for stream in streams]
        assert all(next(line).startswith("data: ") for line in lines)
        os.killpg(dying[1].pid, signal.SIGKILL)
        failed = ['"error"' in "".join(line) for line in lines]
        assert 0 < sum(failed) < 4, "no other server continues an answer"
    until(lambda: len(reports(service)) == 1)
    assert complete(service, "demo", prompt).status_code == 200
    os.killpg(living[1].pid, signal.SIGKILL)
    until(lambda: complete(service, "demo", prompt).status_code == 503)


@pytest.fixture
def plain(tmp_path_factory):
    """vLLM's own server with one method."""
    method = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
    command = ["vllm", "serve", str(load_bundle(DEMO).part("target"))]
    command += ["--tokenizer", str(tokenizer_folder(load_bundle(DEMO)))]
    command += ["--served-model-name", "demo", "--speculative-config", json.dumps(method)]
    command += ["--per-request-spec-decode-metrics", "summary", *FLAGS]
    with serving(tmp_path_factory, startable(command)) as (url, process):
        ready(url, process)
        yield url


def test_a_plain_server_is_a_replica_of_its_method(plain, deploy):
    service = deploy([plain], ("vllm_ngram",))
    bundle = load_bundle(DEMO)
    message = [{"role": "user", "content": "Say it twice: a b c d a b c d"}]
    prompt = encode_chat(bundle.tokenizer(), message, add_generation_prompt=True)
    answer = complete(service, "demo", prompt)
    assert answer.headers["x-specadapt-method"] == "vllm_ngram"
    [choice] = answer.json()["choices"]
    assert_greedy(bundle, prompt, choice["token_ids"], TOKENS, ignore_eos=True)
    counted = answer.json()["usage"]["speculative"]
    assert counted["target_steps"] < TOKENS
    assert counted["accepted_tokens"] > 0
