"""Dashboards: what they ask for is exported, and Grafana's API is spoken to as it is documented."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest
from exported_metrics import labels as labels_of_metrics

from ops.operate.grafana import DASHBOARDS

BOARDS = [json.loads(file.read_text()) for file in sorted(DASHBOARDS.glob("*.json"))]
QUERIES = [
    pytest.param(
        query["expr"], query["legendFormat"], id=f"{board['uid']}: {panel['title']} {index}"
    )
    for board in BOARDS
    for panel in board["panels"]
    for index, query in enumerate(panel["targets"])
]


@pytest.mark.parametrize(("expression", "legend"), QUERIES)
def test_every_query_asks_for_what_is_exported(expression, legend):
    known = labels_of_metrics()
    named = re.findall(r"ray_specadapt_\w+", expression)
    assert named
    labels = set(re.findall(r"{{(\w+)}}", legend))
    labels |= {
        one.strip()
        for by in re.findall(r"by \(([^)]*)\)", expression)
        for one in by.split(",")
        if one.strip()
    }
    for name in named:
        assert name in known, name
        assert labels <= known[name], f"{name} has no {labels - known[name]}"


def test_panels_have_their_place_and_say_what_they_are():
    for body in BOARDS:
        places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in body["panels"]]
        assert len(set(places)) == len(places) >= 6
        for panel in body["panels"]:
            assert panel["description"].endswith(".")
            assert panel["datasource"]["uid"] == "${datasource}"
        assert body["templating"]["list"][0]["type"] == "datasource"


class StandIn(BaseHTTPRequestHandler):
    """A stand-in for Grafana: its documented POST /api/dashboards/db, and no more."""

    received: ClassVar[list[dict]] = []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != "Bearer good":
            self._answer(401, {"message": "Invalid API key"})
        elif self.path != "/grafana/api/dashboards/db" or "uid" not in body["dashboard"]:
            self._answer(404, {"message": "not found"})
        else:
            self.received.append(body)
            uid = body["dashboard"]["uid"]
            self._answer(200, {"uid": uid, "url": f"/d/{uid}/x", "status": "success", "version": 1})

    def _answer(self, status, body):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture
def grafana():
    server = HTTPServer(("127.0.0.1", 0), StandIn)
    StandIn.received = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/grafana"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_push_replaces_what_is_there(specadapt, grafana):
    result = specadapt("grafana", "push", "--url", grafana, "--token", "good", "--folder", "f1")
    assert result.exit_code == 0, result.stderr
    assert [b["dashboard"] for b in StandIn.received] == BOARDS
    assert all(b["overwrite"] and b["folderUid"] == "f1" for b in StandIn.received)
    assert "/d/specadapt-service/" in result.stdout


@pytest.mark.parametrize(
    ("url", "token", "said"),
    [
        (None, "bad", "--token: Grafana refused specadapt-capacity"),
        ("http://127.0.0.1:9", "good", "--url: no Grafana answers"),
        ("grafana.example.com", "good", "--url: give an address"),
    ],
)
def test_refusals_name_the_flag(specadapt, grafana, url, token, said):
    refused = specadapt.refusal("grafana", "push", "--url", url or grafana, "--token", token)
    assert said in refused
