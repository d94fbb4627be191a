"""The admin's endpoints on a real engine, behind the guard."""

import pytest
from asking import HELLO

from deployments.guard.key_file import hash_of
from schemas import AppConfig


@pytest.fixture
async def root(behind_guard):
    keys = [
        {"name": "root", "sha256": hash_of("root-key"), "admin": True},
        {"name": "app", "sha256": hash_of("app-key")},
    ]
    async with behind_guard({"keys": keys})("root-key") as client:
        yield client


async def test_the_configuration_in_force(root, config):
    body = (await root.get("/admin/config")).json()
    assert AppConfig.model_validate(body) == config


async def test_forgetting_and_going_back(root, ingress):
    key = {"authorization": "Bearer app-key"}
    answer = await ingress.http.post("/v1/chat/completions", json=HELLO, headers=key)
    assert answer.is_success
    await ingress.link.exchange(everything=True)
    learned = ingress.link.table.live.steps.tolist()
    assert (await root.get("/admin/routing/history")).json() == {"snapshots": []}

    response = await root.post("/admin/routing/reset")
    [before] = response.json()["snapshots"]
    assert before["occasion"] == "reset"
    await ingress.link.exchange()
    assert ingress.link.table.live.steps.sum() == 0.0

    for body in ({"snapshot": before["number"]}, None, {}):  # there, and back, and there
        response = await root.post("/admin/routing/rollback", json=body)
        assert response.is_success, response.text
    await ingress.link.exchange()
    assert ingress.link.table.live.steps.tolist() == learned


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"snapshot": 7}, 404, "no snapshot 7 (there are none)"),
        ({"snapshot": 0}, 400, "snapshot"),
        ({"number": 1}, 400, "number"),
    ],
)
async def test_what_is_not_there(root, body, status, said):
    response = await root.post("/admin/routing/rollback", json=body)
    assert response.status_code == status
    assert said in response.json()["error"]["message"]


async def test_while_the_actor_is_away(root, ingress, monkeypatch):
    async def gone(*_):
        raise OSError("connection lost")

    monkeypatch.setattr(ingress.feedback, "history", gone)
    response = await root.get("/admin/routing/history")
    assert response.status_code == 503
    assert "connection lost" in response.json()["error"]["message"]
