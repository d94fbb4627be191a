"""Processes of the running service are killed: what its clients notice, and how it recovers."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from running_service import HTTP, START_SECONDS, until
from served import METHODS, preferring, service_config

FAVOURITE = "draft_verify"
PROMPT = "Write a Python function"
GREEDY = {"temperature": 0, "ignore_eos": True}

# Three minutes: every killed replica has to start again.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(deploy, port, tiny_bundle, tmp_path_factory):
    """Every method has one replica; the favourite stays the same whatever its load, unless it
    cannot answer."""
    config = service_config(
        tmp_path_factory.mktemp("failover"),
        tiny_bundle,
        engine={"max_context": 4096, "kv_slots": 16384},
        router={"weights": preferring(FAVOURITE, METHODS)},
        http={"port": port},
    )
    return deploy(config)


@pytest.fixture(scope="module")
def messages(service):
    """A conversation that the favourite has begun, ending with the user."""
    first = service.chat(PROMPT, model=f"tiny:{FAVOURITE}", max_tokens=4).json()
    answer = first["choices"][0]["message"]["content"]
    return [
        {"role": "user", "content": PROMPT},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "And another one"},
    ]


def reasons_until_back(service, messages):
    """Why others answered until Ray Serve had another replica of the favourite."""
    reasons = []

    def back():
        answer = service.chat(messages=messages, max_tokens=2)
        assert answer.status_code == 200, answer.text
        reasons.append(answer.headers["x-specadapt-reason"])
        return answer.headers["x-specadapt-method"] == FAVOURITE

    until(back, START_SECONDS)
    until(lambda: service.routing()["circuits"][FAVOURITE] == "closed", START_SECONDS)
    assert reasons.pop() in ("preferred", "conversation")
    return set(reasons)


def events(response):
    lines = (line.removeprefix("data: ") for line in response.iter_lines() if line)
    return (line if line == "[DONE]" else json.loads(line) for line in lines)


def said(chunks):
    return "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if "choices" in c)


def test_a_stop_before_the_first_chunk_is_invisible(service, messages):
    fields = {"messages": messages, "max_tokens": 16, **GREEDY}
    undisturbed = service.chat(model="tiny:naive", **fields).json()
    text = undisturbed["choices"][0]["message"]["content"]
    stopped = service.method(FAVOURITE, "placement")["pid"]
    os.kill(stopped, signal.SIGSTOP)
    with ThreadPoolExecutor(6) as clients:
        asked = [
            clients.submit(service.chat, stream=stream, **fields) for stream in (True, False) * 3
        ]
        answers = [one.result() for one in asked]
    os.kill(stopped, signal.SIGKILL)
    assert [answer.status_code for answer in answers] == [200] * 6
    for index, answer in enumerate(answers):
        assert answer.headers["x-specadapt-method"] in ("naive", "ngram")
        assert answer.headers["x-specadapt-reason"] == "failover"
        if index % 2:
            assert answer.json()["choices"][0]["message"]["content"] == text
        else:
            *chunks, done = events(answer)
            assert (said(chunks), done) == (text, "[DONE]")
    assert reasons_until_back(service, messages) == {"failover"}


def test_after_a_death_in_the_middle_of_a_stream_another_method_goes_on(service, messages):
    long = {"messages": messages, "max_tokens": 2000, **GREEDY}
    whole = service.chat(**long)
    assert whole.is_success, whole.text
    text = whole.json()["choices"][0]["message"]["content"]
    favourite = service.method(FAVOURITE, "placement")["pid"]
    body = {"model": "tiny", "stream": True, **long}
    extra = {"ignore_eos": body.pop("ignore_eos")}
    address = f"{service.url}/v1"
    with (
        openai.OpenAI(base_url=address, api_key="none", max_retries=0) as client,
        client.chat.completions.create(**body, extra_body=extra) as read,
        HTTP.stream(
            "POST", f"{address}/chat/completions", json=body | extra, timeout=START_SECONDS
        ) as response,
    ):
        assert response.headers["x-specadapt-method"] == FAVOURITE
        stream, chunks = events(response), []
        while not said(chunks):
            chunks.append(next(stream))
        pieces = [""]
        while not pieces[-1]:
            pieces.append(next(read).choices[0].delta.content)
        os.kill(favourite, signal.SIGKILL)
        *more, done = stream
        pieces += [chunk.choices[0].delta.content or "" for chunk in read if chunk.choices]
    assert (said(chunks + more), done) == (text, "[DONE]")
    assert "".join(pieces) == text
    reasons_until_back(service, messages)
