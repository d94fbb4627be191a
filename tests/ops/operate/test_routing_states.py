"""`specadapt routing` against a real service and its stored state."""

import asyncio
import json

import pytest
from served import service_config

from deployments.learning.feedback import Feedback
from router.acceptance import acceptance
from router.table import load_table
from tests.deployments.observations import observation


def test_states_of_a_running_service(specadapt, listening):
    url = ("--url", listening)
    assert specadapt.json("routing", "history", *url) == {"snapshots": []}
    for expected in (1, 2):
        kept = specadapt.json("routing", "reset", *url)["snapshots"]
        assert len(kept) == expected
    first = kept[-1]["number"]
    [gone_back_to] = specadapt.json("routing", "rollback", first, *url)["snapshots"]
    assert gone_back_to["number"] == first
    kept = specadapt.json("routing", "history", *url)["snapshots"]
    assert [s["occasion"] for s in kept] == ["rollback", "reset", "reset"]
    assert "ngram 6" in specadapt("routing", "history", *url).stdout
    numbers = ", ".join(str(snapshot["number"]) for snapshot in reversed(kept))
    refused = specadapt.refusal("routing", "rollback", 99, *url)
    assert f"there is no snapshot 99 (there are {numbers})" in refused


@pytest.fixture
def learned(tmp_path, tiny_bundle):
    """A configuration's file, whose stored state has seen n-gram emit ten tokens a step; one
    snapshot is from before that."""
    config = service_config(tmp_path, tiny_bundle, ("naive", "ngram"))

    async def learn():
        actor = Feedback(config)
        await actor.reset()
        stats = {"output_tokens": 40, "target_steps": 5}
        answers = [observation(str(index), "ngram", **stats) for index in range(40)]
        await actor.exchange(answers, ("", -1))

    asyncio.run(learn())
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(config.model_dump(mode="json")))
    return file


def test_what_was_learned_becomes_a_table(specadapt, learned, tmp_path):
    made = specadapt.json("routing", "export", "--config", learned, "--out", tmp_path / "new")
    table = load_table(tmp_path / "new")
    assert made["fit_id"] == "small"
    assert table.fit_id == made["promoted"] != "small"
    ngram = table.methods.index("ngram")
    assert acceptance(table)[0, ngram, 0] > 4.5
    assert table.assignment[0][0] == "ngram"

    before = ["--snapshot", 2, "--out", tmp_path / "old"]
    specadapt.json("routing", "export", "--config", learned, *before)
    table = load_table(tmp_path / "old")
    assert acceptance(table)[0, ngram, 0] < 2


def test_where_nothing_was_learned(specadapt, tmp_path, tiny_bundle):
    config = service_config(tmp_path, tiny_bundle, ("naive", "ngram"))
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(config.model_dump(mode="json")))
    asked = ["routing", "export", "--config", file, "--out", tmp_path / "new"]
    assert "no learned state" in specadapt.refusal(*asked)
    assert "--snapshot: there is no snapshot 3" in specadapt.refusal(*asked, "--snapshot", 3)
