"""`specadapt bench rules` on a tiny family: figures, files, refusals."""

import json

import pytest


@pytest.fixture
def command(tiny_bundle, prompts_file, tmp_path):
    """The command over some prompts, with its files in a folder."""
    files = ["--costs", tmp_path / "costs.json", "--records", tmp_path / "drafts"]
    common = ["--bundle", tiny_bundle.path, "--prompts", prompts_file, "--threads", 1]
    return ["bench", "rules", *common, "--limit", 4, "--max-tokens", 12, "--decoded", 1, *files]


def known_costs(tmp_path) -> None:
    """Costs that nobody has to measure."""
    costs = {
        "step_ms": {"1": 10.0, "2": 11.0, "64": 40.0},
        "first_level_ms": 1.0,
        "level_ms": {"1": 0.5, "16": 1.0},
        "read_out_ms": 1.0,
        "measured_step_ms": {"naive": 10.0, "eagle3": 14.0},
        "settings": {},
    }
    (tmp_path / "costs.json").write_text(json.dumps(costs))


def test_rules_of_recorded_drafts(specadapt, command, tmp_path):
    known_costs(tmp_path)
    figures = specadapt.json(*command)
    assert figures["answers"] == {"tuned_on": 2, "judged": 2}
    bound = figures["rules"]["known beforehand"]["speedup"]
    assert all(found["speedup"] <= bound for found in figures["rules"].values())
    assert set(figures["layer_skip"]) == {"1", "2"}
    assert figures["lookahead"]["lookahead"]["same_answers"] == 1.0
    again = specadapt.json(*command)
    assert again["rules"] == figures["rules"]
    assert "another max_tokens" in specadapt.refusal(*command, "--max-tokens", 13)
    shown = specadapt(*command)
    assert "OPT-Tree" in shown.stdout
    next((tmp_path / "drafts").iterdir()).write_text("?")
    assert "holds no recorded drafts" in specadapt.refusal(*command)


def test_costs_are_measured_apart(specadapt, command, tmp_path):
    found = specadapt.json(*command, "--time-only")
    assert json.loads((tmp_path / "costs.json").read_text()) == found
    assert found["step_ms"]["1"] > 0.0
    assert not (tmp_path / "drafts").exists()


def test_what_is_refused(specadapt, command, tmp_path):
    assert "fills no trees" in specadapt.refusal(*command, "--method", "ngram")
    (tmp_path / "costs.json").write_text("{}")
    assert "holds no costs" in specadapt.refusal(*command)
    one = command[: command.index("--costs")]
    assert "--costs" in specadapt.refusal(*one, "--time-only")
