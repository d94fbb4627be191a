"""`bench load --serve` and `bench learning` as commands, on a small recording."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from replayed import replay_config

from workers.bundle import Bundle

pytestmark = pytest.mark.slow

METHODS = ("draft_verify", "ngram")


@pytest.fixture(scope="module")
def world(tiny_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """The arguments that both commands take."""
    folder = tmp_path_factory.mktemp("load")
    config = replay_config(folder, tiny_bundle, ("code", "weather", "cooking"), {})
    config = config.model_copy(
        update={"engine": config.engine.model_copy(update={"replay_slowdown": 4.0})}
    )
    (folder / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    return [
        *["--config", folder / "config.yaml", "--profile", folder / "recording"],
        *["--methods", ",".join(METHODS), "--replicas", 1],
    ]


def specadapt(*arguments: object) -> Any:
    """The command's JSON, which has to be all of its standard output."""
    command = [sys.executable, "-m", "ops", *map(str, arguments), "--json", "-"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_policies_side_by_side(world):
    figures = specadapt(
        *["bench", "load", "--serve", *world, "--shares", "0.5", "--seconds", 10],
        *["--singles", "draft_verify"],
    )
    assert figures["simulated"] is False
    bounds = figures["bounds"]
    assert bounds["by_prompt"] >= 0.999 * bounds["by_cluster"] > 0
    assert bounds["shared_by_cluster"] >= 0.999 * max(bounds["single"].values())
    [load] = figures["loads"]
    policies = load["policies"]
    assert list(policies) == [
        "routed", "static_table", "random", "routed_shared", "only_draft_verify",
    ]  # fmt: skip
    for policy in policies.values():
        assert policy["requests"] == figures["settings"]["requests"][0]
        assert policy["refused"] == 0
        assert 0 < policy["mean_ttft_s"] < policy["mean_latency_s"]
    assert policies["only_draft_verify"]["shares"] == {"draft_verify": 1.0}
    assert set(policies["random"]["shares"]) == set(METHODS)
    assert load["routed_over"].keys() == {
        "best_single", "static_table", "random", "routed_shared",
    }  # fmt: skip


PHASES = {
    "steady": (40, ["steady"]),
    "slower": (60, ["before", "slower", "recovered"]),
    "killed": (60, ["before", "one killed", "all killed"]),
    "new_kind": (60, ["known prompts", "new prompts"]),
}
"""By scenario the pairs that it asks in all where --pairs is 20, and its phases."""


def test_learning_scenarios(world):
    names = ",".join(PHASES)
    new = ("--new", "cooking", "--fitted-on", world[3], "--clusters", 2)
    figures = specadapt("bench", "learning", *world, "--scenarios", names, "--pairs", 20, *new)
    assert figures["scenarios"]["killed"]["method"] == "draft_verify"
    for name, (pairs, phases) in PHASES.items():
        scenario = figures["scenarios"][name]
        assert scenario["failed"] == [], name
        assert [phase["phase"] for phase in scenario["phases"]] == phases
        assert len(scenario["pairs"]) == pairs
        assert all(pair["routed_s"] is not None for pair in scenario["pairs"])
        assert scenario["table"][-1]["version"] > 0


def test_replicas_come_under_ray_serves_own_policy(world, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(f'{{"timestamp": {at * 100}}}\n' for at in range(400)))
    figures = specadapt(
        *["bench", "scaling", *world[:-2], "--trace", trace, "--minutes", 0.3, "--demand", 1],
        *["--gpus", 4, "--policies", "ongoing_1"],
    )
    policy = figures["policies"]["ongoing_1"]
    assert policy["answered"] == policy["requests"] == figures["settings"]["requests"]
    assert policy["replicas"][0] == {"at": 0.0, "running": 2, "starting": 0, "stopping": 0}
    assert policy["most_replicas"] > 2
    assert policy["gpu_seconds"] > 2 * 0.99 * policy["seconds"]
