"""A service on three nodes with addresses of their own: one dies, one is cut off and comes back."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from nodes import ENVIRONMENT, GCS_PORT, HEAD, Node, can_make_nodes, cluster
from running_service import HTTP, START_SECONDS, until
from served import service_config
from steady_clients import Clients

ROOT = Path(__file__).parents[2]
PORT = 8000
STEADY = 20
"""Answers in a row at each client. While one of two ingresses is lost half of them go wrong."""
REPLICAS = {"naive": 2, "ngram": 2}
WAYS = [{"max_tokens": 60, "ignore_eos": True}, {"max_tokens": 60, "stream": True}]

# Five minutes: a cluster of its own, whose nodes start again.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_make_nodes(), reason="may not make network namespaces (ip netns)"),
]


class Cluster:
    """Three nodes with a service on them, each with a proxy."""

    def __init__(self, nodes: list[Node]) -> None:
        self.head, self.first, self.second = nodes

    def url(self, node: Node) -> str:
        return f"http://{node.address}:{PORT}"

    def answers(self, node: Node) -> bool:
        try:
            return HTTP.get(f"{self.url(node)}/health", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def whole(self) -> bool:
        """Every replica is well, as an ingress hears of it through the head's proxy."""
        try:
            routing = HTTP.get(f"{self.url(self.head)}/v1/routing", timeout=5).json()
        except (httpx.HTTPError, ValueError):
            return False
        well = Counter(load["methods"][0] for load in routing["loads"] if load["healthy"])
        return well == REPLICAS and routing["feedback"]["connected"]

    def under_load(self, happens: Callable[[], None]) -> list[tuple[Any, ...]]:
        """What failed at clients of the head's and the second node's proxies while something
        happened, until Ray had noticed it and they were answered again."""
        proxies = self.url(self.head), self.url(self.second)
        with ExitStack() as stack:
            clients = [stack.enter_context(Clients(url, WAYS)) for url in proxies]

            def steady() -> bool:
                return all(one.in_a_row >= STEADY for one in clients)

            until(steady, START_SECONDS)
            happens()
            until(lambda: not self.whole(), START_SECONDS)
            for one in clients:
                one.in_a_row = 0
            until(steady, START_SECONDS)
        return [failure for one in clients for failure in one.failed]


@pytest.fixture(scope="module")
def three(tiny_bundle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nodes")
    config = service_config(
        folder,
        tiny_bundle,
        tuple(REPLICAS),
        http={
            "host": "0.0.0.0",
            "port": PORT,
            "ingress_replicas": 2,
            "ingress_max_replicas_per_node": 1,
        },
    )
    apart = {"min_replicas": 2, "max_replicas": 2, "num_cpus": 1, "max_replicas_per_node": 1}
    methods = tuple(method.model_copy(update=apart) for method in config.methods)
    config = config.model_copy(update={"methods": methods})
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    with cluster([2, 4, 4]) as nodes:
        served = nodes[0].inside(sys.executable, "-m", "ops", "serve", "--config", file)
        environment = os.environ | ENVIRONMENT | {"RAY_ADDRESS": f"{HEAD}:{GCS_PORT}"}
        log = folder / "serve.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                served, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
            )
        made = Cluster(nodes)
        try:
            until(lambda: made.whole() or process.poll() is not None, START_SECONDS)
            assert process.poll() is None, log.read_text()
            yield made
        finally:
            process.terminate()
            process.wait(START_SECONDS)


def told(failed):
    """Only what the lost ingress had, or got before Ray noticed, has no answer, and is told so:
    the proxies ask no other ingress for it."""
    assert {failure[1] for failure in failed} <= {500, "RemoteProtocolError"}, failed


def test_every_node_has_a_proxy(three):
    for node in (three.head, three.first, three.second):
        until(lambda node=node: three.answers(node))


def test_a_node_dies(three):
    told(three.under_load(three.first.kill))
    assert not three.answers(three.first)


def test_it_comes_back(three):
    three.first.join()
    three.first.start()
    until(three.whole, START_SECONDS)


def test_a_node_is_cut_off_and_joins_again(three):
    told(three.under_load(three.first.cut))
    three.first.join()
    # Ray has called the node dead: its raylet hears of it and ends, and so would its container
    until(lambda: not three.first.has_raylet(), START_SECONDS)
    three.first.end()
    three.first.start()
    until(lambda: three.answers(three.first) and three.whole(), START_SECONDS)
