"""A real Prometheus scrapes the running service, and every panel's query finds data."""

import json
import shutil
import subprocess

import httpx
import pytest
import ray
from running_service import CALL_SECONDS, HTTP, START_SECONDS, until

from ops.common.running_service import free_port
from ops.operate.grafana import DASHBOARDS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="needs Prometheus: apt-get install prometheus"
    ),
]

QUIET = {
    "Requests without an answer",
    "Degraded routing",
    "What exploring costs",
}
"""What a service in order, which tries nothing out, has nothing to say about."""


@pytest.fixture(scope="module")
def prometheus(service, tmp_path_factory):  # noqa: ARG001 - whose Ray it scrapes
    """The address of a Prometheus that scrapes the service's nodes every second."""
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    nodes = [f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}" for node in ray.nodes()]
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "ray", "static_configs": [{"targets": nodes}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        yield f"http://127.0.0.1:{port}"
        process.terminate()


def found(prometheus, expression):
    """The series that a query finds now, recent counts included."""
    query = expression.replace("[5m]", "[1m]")
    try:
        answer = HTTP.get(
            f"{prometheus}/api/v1/query", params={"query": query}, timeout=CALL_SECONDS
        )
    except httpx.TransportError:
        return []
    if answer.status_code == 503:  # it is starting
        return []
    assert answer.is_success, answer.text
    return answer.json()["data"]["result"]


def test_every_panels_query_finds_data(service, prometheus):
    def asked(expression):
        assert service.chat(max_tokens=4).is_success  # rates need counts that go on
        return found(prometheus, expression)

    for file in sorted(DASHBOARDS.glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            if panel["title"] in QUIET:
                continue
            for query in panel["targets"]:
                series = until(lambda q=query: asked(q["expr"]), START_SECONDS)
                assert all(s["value"][1] != "" for s in series), panel["title"]
