"""Dashboards: what they ask for is exported, and Grafana's API is spoken to as it is documented."""

import json
import re

import pytest
from exported_metrics import labels as labels_of_metrics
from stand_in import StandIn, listening

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


class Grafana(StandIn):
    """Its documented POST /api/dashboards/db, and no more."""

    def post(self, body):
        if self.headers["authorization"] != "Bearer good":
            self.reply({"message": "Invalid API key"}, 401)
        elif self.path != "/grafana/api/dashboards/db" or "uid" not in body["dashboard"]:
            self.reply({"message": "not found"}, 404)
        else:
            self.server.seen.append(body)
            uid = body["dashboard"]["uid"]
            self.reply({"uid": uid, "url": f"/d/{uid}/x", "status": "success", "version": 1})


@pytest.fixture
def grafana():
    with listening(Grafana) as server:
        yield server


def test_a_push_replaces_what_is_there(specadapt, grafana):
    url = f"{grafana.address}/grafana"
    result = specadapt("grafana", "push", "--url", url, "--token", "good", "--folder", "f1")
    assert result.exit_code == 0, result.stderr
    assert [b["dashboard"] for b in grafana.seen] == BOARDS
    assert all(b["overwrite"] and b["folderUid"] == "f1" for b in grafana.seen)
    assert "/d/specadapt-service/" in result.stdout


@pytest.mark.parametrize(
    ("url", "token", "said"),
    [
        (None, "bad", "--token: Grafana refused specadapt-capacity"),
        ("http://127.0.0.1:9", "good", "--url: no Grafana answers"),
    ],
)
def test_refusals_name_the_flag(specadapt, grafana, url, token, said):
    url = url or f"{grafana.address}/grafana"
    refused = specadapt.refusal("grafana", "push", "--url", url, "--token", token)
    assert said in refused
