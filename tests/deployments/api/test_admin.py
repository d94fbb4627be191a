"""The admin's endpoints on a real engine, behind the guard."""

import httpx
import pytest
import yaml
from asking import HELLO

from deployments.guard.key_file import hash_of
from deployments.guard.middleware import guarded
from deployments.metrics import Metrics
from schemas import AppConfig, GuardConfig


@pytest.fixture
async def root(ingress, tmp_path):
    file = tmp_path / "keys.yaml"
    keys = [
        {"name": "root", "sha256": hash_of("root-key"), "admin": True},
        {"name": "app", "sha256": hash_of("app-key")},
    ]
    file.write_text(yaml.safe_dump({"keys": keys}))
    app = guarded(ingress.app, GuardConfig(keys_file=file), Metrics())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    headers = {"authorization": "Bearer root-key"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://test", headers=headers
    ) as client:
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
