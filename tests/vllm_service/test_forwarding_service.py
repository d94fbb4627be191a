"""Our service in front of the demo's `specadapt vllm serve`: it routes, the server decodes."""

import json
import os
import signal

import httpx
import pytest
import ray
from conftest_bundle import DEMO
from decoding import assert_greedy
from ray import serve
from running_service import START_SECONDS, deployed, until
from served import service_config
from vllm_server import vllm_serving

from deployments.run import start_local_ray, with_free_port
from workers.bundle import load_bundle
from workers.chat_template import encode_chat

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
def server(tmp_path_factory):
    with vllm_serving(tmp_path_factory, "ngram,eagle3", FLAGS) as (url, process):
        yield url, process


@pytest.fixture(scope="module")
def service(server, tmp_path_factory):
    """Start the service and the server together. Methods can be used once the server is ready."""
    url, _ = server
    config = service_config(
        tmp_path_factory.mktemp("service"),
        load_bundle(DEMO),
        METHODS,
        layout="shared",
        engine={"openai": {"urls": [f"{url}/v1"]}, "max_context": 512},
        http={"port": 0},
    )
    start_local_ray(cpus=4)
    yield deployed(with_free_port(config))
    serve.shutdown()
    ray.shutdown()


def complete(service, model, prompt, **fields):
    body = {"model": model, "prompt": prompt, "temperature": 0, "max_tokens": TOKENS, **fields}
    body |= {"return_token_ids": True, "ignore_eos": True}
    return httpx.post(f"{service.url}/v1/completions", json=body, timeout=START_SECONDS)


def test_answers_are_those_of_plain_decoding_until_the_server_dies(service, server):
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

    url = f"{service.url}/v1/completions"
    body = {"model": "demo", "prompt": prompt, "max_tokens": 400, "ignore_eos": True}
    body |= {"stream": True}
    with httpx.stream("POST", url, json=body, timeout=START_SECONDS) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("data: ")
        os.killpg(server[1].pid, signal.SIGKILL)
        assert '"error"' in "".join(lines), "no other method continues the answer"
    until(lambda: complete(service, "demo", prompt).status_code == 503)
