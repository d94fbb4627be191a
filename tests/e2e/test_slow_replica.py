"""A service on four nodes with addresses of their own: one of its eight replicas gets slow.

Replicas have fake engines, so that two cores can serve as eight."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest
import yaml
from nodes import ENVIRONMENT, GCS_PORT, HEAD, can_make_nodes, cluster
from open_loop import Request, client, under_load
from running_service import CALL_SECONDS, HTTP, START_SECONDS, throttled, until
from served import fake_engines, service_config

from deployments.actors import LOADS
from deployments.run import APPLICATION
from ops.bench.serve_runs import poisson
from ops.common.prompts import Prompt

ROOT = Path(__file__).parents[2]
PORT = 8000
NODES, REPLICAS = 4, 8
STEP_SECONDS, TOKENS = 0.06, 25
"""An answer alone takes 1.5 s."""
RATE = 1.0
"""Requests a second at each of the nodes' proxies: most replicas have one or none."""
LEARNING_SECONDS, SECONDS = 15.0, 60.0
SPEED = 0.4
"""Of the slow replica, in that of the others."""
ANSWERS = {"model": "tiny", "temperature": 0.0, "max_tokens": TOKENS}
PROMPTS = [
    Prompt(str(number), "test", ({"role": "user", "content": f"Boil {number} potatoes"},))
    for number in range(60)
]
PIDS = f"""
import json
import ray
from ray import serve

ray.init(address="{HEAD}:{GCS_PORT}", log_to_driver=False)
calls = serve.get_deployment_handle("naive", "{APPLICATION}").broadcast("placement")
found = calls.results(timeout_s={CALL_SECONDS})
print(json.dumps({{place["replica"]: place["pid"] for place in found}}))
"""
PLACES = f"""
import json, time
import ray

ray.init(address="{HEAD}:{GCS_PORT}", log_to_driver=False)
actors = ray.util.list_named_actors(all_namespaces=True)
[name] = [actor for actor in actors if actor["name"].startswith("{LOADS}:")]
board = ray.get_actor(**name)
while True:
    for report in ray.get(board.loads.remote()).reports:
        print(json.dumps([report.replica, list(report.requests)]), flush=True)
    time.sleep(0.2)
"""
"""What replicas say which requests they have: an HTTP path tells that to nobody."""

# Some minutes: a cluster of its own.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_make_nodes(), reason="may not make network namespaces (ip netns)"),
]


def routing(node):
    """What the node's ingress says of the replicas; nothing while it is not there."""
    try:
        return HTTP.get(f"http://{node.address}:{PORT}/v1/routing", timeout=5).json()
    except (httpx.HTTPError, ValueError):
        return {"loads": []}


@pytest.fixture(scope="module")
def nodes(tiny_bundle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nodes")
    count = {"min_replicas": REPLICAS, "max_replicas": REPLICAS}
    settings = {
        "methods": [{"name": "naive", "num_cpus": 1, "max_replicas_per_node": 2, **count}],
        "http": {
            "host": "0.0.0.0",
            "port": PORT,
            "ingress_replicas": NODES,
            "ingress_max_replicas_per_node": 1,
        },
    }
    config = service_config(folder, tiny_bundle, step_seconds=STEP_SECONDS, **settings)
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    with patch.dict(os.environ, fake_engines(STEP_SECONDS)), cluster([4] * NODES) as made:
        served = made[0].inside(sys.executable, "-m", "ops", "serve", "--config", file)
        environment = os.environ | ENVIRONMENT | {"RAY_ADDRESS": f"{HEAD}:{GCS_PORT}"}
        log = folder / "serve.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                served, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
            )

        def whole():
            found = [len(routing(node)["loads"]) for node in made]
            return found == [REPLICAS] * NODES or process.poll() is not None

        try:
            until(whole, 2 * START_SECONDS)
            assert process.poll() is None, log.read_text()
            yield made
        finally:
            process.terminate()
            process.wait(START_SECONDS)


def inside(node, script, output=None):
    return subprocess.Popen(
        node.inside(sys.executable, "-c", script),
        cwd=ROOT,
        env=os.environ | ENVIRONMENT,
        stdout=output,
    )


async def under_even_load(nodes):
    """The requests of all proxies, those after LEARNING_SECONDS."""
    everyone = list[Request]()
    async with AsyncExitStack() as stack:
        asked = []
        for seed, node in enumerate(nodes):
            server = await stack.enter_async_context(client(f"http://{node.address}:{PORT}"))
            load = under_load(server, PROMPTS, poisson(1000, seed) / RATE, ANSWERS)
            asked.append(await stack.enter_async_context(load))
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(LEARNING_SECONDS + SECONDS)
    for requests in asked:
        everyone += [r for r in requests if r.due > began + LEARNING_SECONDS]
    return everyone


def test_a_slow_replica_gets_few_requests_while_others_are_free(nodes, tmp_path):
    names = sorted(load["replica"] for load in routing(nodes[0])["loads"])
    slow = names[0]
    said, _ = inside(nodes[0], PIDS, subprocess.PIPE).communicate(timeout=2 * CALL_SECONDS)
    pid = json.loads(said.splitlines()[-1])[slow]
    file = tmp_path / "places.jsonl"
    with file.open("w") as output, throttled([pid], SPEED):
        watching = inside(nodes[0], PLACES, output)
        try:
            until(lambda: file.stat().st_size)
            requests = asyncio.run(under_even_load(nodes))
        finally:
            watching.kill()
            watching.wait()
    *lines, _ = file.read_text().split("\n")
    places = {name: replica for replica, ids in map(json.loads, lines) for name in ids}
    assert [request.error for request in requests] == [None] * len(requests)
    counts = Counter(places.get(request.id) for request in requests)
    print(f"{len(requests)} requests, {counts}, the slow one is {slow}")
    assert counts[None] < 0.1 * len(requests), "reports tell where nearly every request was"
    fair = len(requests) / REPLICAS
    # By outstanding tokens alone it gets 0.6 of a fair share.
    assert counts[slow] < 0.3 * fair
    # Requests that find several free replicas choose among them at random.
    assert all(counts[name] > fair - 3.0 * fair**0.5 for name in names[1:])
