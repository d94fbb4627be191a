"""A bundle without a routing table: served, and learned about from the first answer."""

import json
import shutil

import pytest
from asking import HELLO

from deployments.app import build
from deployments.artifacts import served_table
from router.table import RoutingTableError, load_table, restrict, save_table


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


@pytest.fixture
def without_ngram(base_config, tmp_path):
    """The tiny bundle with a table of its own, which does not know ngram."""
    shutil.copytree(base_config.bundle, tmp_path / "family")
    known = restrict(load_table(base_config.router.routing), ["naive", "draft_verify"])
    save_table(known, tmp_path / "family" / "routing")
    return tmp_path / "family"


def test_a_bundles_table_that_lacks_a_method_is_not_used(config, without_ngram, caplog):
    table = served_table(config.model_copy(update={"bundle": without_ngram}))
    assert table.fit_id.startswith("unfitted-")
    assert table.methods == ("naive", "draft_verify", "ngram")
    assert "without ngram" in caplog.text


def test_a_configured_one_has_to_know_all_methods(config, without_ngram):
    router = config.router.model_copy(update={"routing": without_ngram / "routing"})
    with pytest.raises(RoutingTableError, match="ngram not in the routing table"):
        served_table(config.model_copy(update={"router": router}))


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
