"""A bundle without a routing table: served, and learned about from the first answer."""

import json

import pytest
from asking import HELLO

from deployments.app import build
from deployments.artifacts import served_table


@pytest.fixture
def config(config):
    """The tiny bundle has no table of its own."""
    router = config.router.model_copy(update={"routing": None, "default_method": "ngram"})
    return config.model_copy(update={"router": router})


def test_it_is_built(config):
    build(config)
    table = served_table(config)
    assert table.fit_id.startswith("unfitted-")
    assert table.default_method == "ngram"


def test_also_without_an_encoder(config, tmp_path):
    router = config.router.model_copy(update={"encoder": tmp_path})
    assert len(served_table(config.model_copy(update={"router": router})).assignment) == 1


async def test_prompts_are_answered_and_teach(ingress):
    for _ in range(3):
        answer = await ingress.http.post("/v1/chat/completions", json=HELLO | {"ignore_eos": True})
        assert answer.status_code == 200
        assert answer.headers["x-specadapt-cluster"] == "0"
    await ingress.link.exchange(everything=True)
    routing = (await ingress.http.get("/v1/routing")).json()
    json.dumps(routing, allow_nan=False)
    [evidence] = routing["evidence"]
    assert sum(evidence["live_steps"].values()) > 0
    assert evidence["speedup"] == dict.fromkeys(("naive", "draft_verify", "ngram"))
    explained = await ingress.http.post("/v1/routing/explain", json={"prompt": "hello"})
    assert explained.json()["cluster"] == 0
