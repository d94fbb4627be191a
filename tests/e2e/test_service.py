"""The whole way of a prompt, over HTTP, with the replicas' real processes."""

import asyncio
import concurrent.futures
import json
import os
import signal

import httpx
import ray
from ray._private import state as ray_state
from running_service import HTTP, until


def test_headers_name_who_answers_and_the_request(service):
    response = service.chat(stream=True)
    assert response.headers["x-specadapt-method"] in {m.name for m in service.config.methods}
    assert response.headers["x-specadapt-cluster"] in ("0", "1")
    assert response.headers["x-specadapt-reason"]
    echoed = HTTP.get(f"{service.url}/health", headers={"x-request-id": "mine-7"})
    assert echoed.headers.get_list("x-request-id") == ["mine-7"]
    for load in service.routing()["loads"]:
        assert "prefixes" not in load, "these are hashes of others' prompts"


def test_fields_reach_the_replicas_and_their_figures_come_back(service):
    asked = {
        "model": "tiny",
        "prompt": "Write a Python function",
        "echo": True,
        "logprobs": 1,
        "max_tokens": 12,
        "min_tokens": 12,
        "temperature": 0,
        "return_token_ids": True,
        "speculation": {"method": "draft_verify", "max_draft_tokens": 0},
        "unheard_of": 1,
    }
    url = f"{service.url}/v1/completions"
    headers = {"x-slo-ttft-ms": "60000"}
    response = HTTP.post(url, json=asked, headers=headers)
    assert response.status_code == 200, response.text
    assert response.headers["x-specadapt-ignored"] == "unheard_of"
    body = response.json()
    [choice], usage = body["choices"], body["usage"]
    assert len(choice["token_ids"]) == usage["completion_tokens"] == 12
    assert usage["speculative"]["drafted_tokens"] == 0
    said = choice["logprobs"]["token_logprobs"]
    assert said[0] is None
    assert len(said) == usage["total_tokens"]
    text = HTTP.post(f"{service.url}/detokenize", json={"tokens": choice["prompt_token_ids"]})
    assert text.json() == {"prompt": asked["prompt"]}


def serving():
    """The processes that answer. Actors of an earlier service may end at any time."""
    actors = [a for a in ray_state.actors().values() if a["State"] == "ALIVE"]
    return {(a["Name"], a["Pid"]) for a in actors if a["Name"].startswith("SERVE_")}


KILLERS = [
    {"kind": "json_schema", "text": '{"$ref": "#"}'},
    {"kind": "json_schema", "text": '{"enum": ' + "[" * 9000 + "]" * 9000 + "}"},
    {"kind": "lark", "text": "start: " + "(" * 5000 + '"a"' + ")" * 5000},
]


def test_killer_grammars_are_refused_and_end_nobody(service):
    """All at once, against the real ingress and replicas."""
    before = serving()
    with concurrent.futures.ThreadPoolExecutor(len(KILLERS)) as clients:
        answers = list(clients.map(lambda g: service.chat(grammar=g, max_tokens=8), KILLERS))
    assert [answer.status_code for answer in answers] == [400] * len(KILLERS)
    assert service.chat().status_code == 200
    assert before <= serving()
    circuits = HTTP.get(f"{service.url}/v1/routing").json()["circuits"]
    assert set(circuits.values()) == {"closed"}


async def test_sixty_four_streams_at_once(service):
    async def streamed(client, number):
        content = f"Write a Python function, number {number}"
        body = {
            "model": "tiny",
            "messages": [{"role": "user", "content": content}],
            "max_tokens": 24,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            lines = [line async for line in response.aiter_lines()]
        # What waits for long is pinged by comments.
        data = [line for line in lines if line.startswith("data: ")]
        *events, done = [line.removeprefix("data: ") for line in data]
        return response.status_code, done, [json.loads(event) for event in events]

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=service.url, timeout=120, limits=limits) as client:
        answers = await asyncio.gather(*(streamed(client, number) for number in range(64)))
    assert len({events[0]["id"] for _, _, events in answers}) == 64
    for status, done, events in answers:
        assert (status, done) == (200, "[DONE]")
        assert events[-1]["usage"]["completion_tokens"] == 24
        assert [c["finish_reason"] for e in events for c in e["choices"]][-1] == "length"

    until(service.idle)
    assert service.routing()["circuits"].keys() == {
        method.name for method in service.config.methods
    }
    assert set(service.routing()["circuits"].values()) == {"closed"}


def live_steps(service):
    evidence = service.routing()["evidence"]
    return sum(sum(cluster["live_steps"].values()) for cluster in evidence)


def test_what_was_learned_survives_the_feedback_actors_death(service):
    service.chat()
    until(lambda: service.routing()["feedback"]["observations_waiting"] == 0)
    before = service.routing()
    learned = live_steps(service)
    assert learned > 0
    ray.kill(service.feedback(), no_restart=False)
    assert service.chat(max_tokens=2).status_code == 200, "it answers meanwhile"
    until(lambda: service.routing()["feedback"]["epoch"] > before["feedback"]["epoch"])
    until(lambda: service.routing()["feedback"]["observations_waiting"] == 0)
    assert service.routing()["version"] >= before["version"]
    assert live_steps(service) >= 0.8 * learned
    assert HTTP.get(f"{service.url}/health").status_code == 200


def test_load_reports_do_not_depend_on_the_feedback_actor(service):
    """Its process is stopped: it is there, and answers nobody."""
    feedback = service.feedback_pid()
    os.kill(feedback, signal.SIGSTOP)
    try:
        until(lambda: service.routing()["feedback"]["problem"])
        assert service.chat(max_tokens=2).headers["x-specadapt-degraded"] == "no-feedback"
        before = {load["replica"]: load["time"] for load in service.routing()["loads"]}
        assert len(before) == len(service.config.methods)
        until(
            lambda: all(
                load["time"] > before[load["replica"]] for load in service.routing()["loads"]
            )
        )
        assert HTTP.get(f"{service.url}/health").status_code == 200
    finally:
        os.kill(feedback, signal.SIGCONT)
    until(lambda: service.routing()["feedback"]["problem"] is None)
    until(lambda: service.routing()["feedback"]["observations_waiting"] == 0)
