"""`tune-tree` on a tiny bundle: the real engine, real step times."""

import json

import pytest

from schemas import AppConfig

SMALL = ["--dtype", "float32", "--max-tokens", 24, "--limit", 4, "--levels", 3]


@pytest.fixture
def flags(tiny_bundle, prompts_file):
    return ["--bundle", tiny_bundle.path, "--prompts", prompts_file, *SMALL]


@pytest.mark.slow
def test_what_was_expected_of_the_tree_is_what_it_does(specadapt, flags):
    """At temperature 0 in float32 recorded ranks foretell every step of every tree."""
    figures = specadapt.json("tune-tree", "--method", "draft_verify", *flags)
    measured = figures["measured"]
    assert list(measured) == ["naive", "draft_verify", "best_chain", "tuned"]
    foretold = figures["expected_acceptance_length"]
    assert foretold == pytest.approx(measured["tuned"]["tokens_per_step"])
    assert measured["naive"]["tokens_per_step"] == 1.0
    assert measured["tuned"]["tokens_per_step"] > 1.0
    assert 1 <= figures["depth"] <= 3
    assert figures["expected_speedup"] > 0
    for level in figures["per_rank_acceptance"]:
        assert len(level) == 8
        assert sum(level) <= 1.0
    cells = {(row["depth"], row["nodes"]): row for row in figures["curve"]}
    assert {depth for depth, _ in cells} == {1, 2, 3}
    assert max(nodes for _, nodes in cells) == 63
    for row in cells.values():
        assert row["step_ms"] > 0
        assert 1.0 <= row["tokens_per_step"] <= row["depth"] + 1
        assert row["tokens_per_s"] == pytest.approx(1e3 * row["tokens_per_step"] / row["step_ms"])
    best = max(figures["by_depth"], key=lambda row: row["tokens_per_s"])
    assert (best["depth"], best["nodes"]) == (figures["depth"], figures["nodes"])
    [method] = AppConfig.model_validate({"methods": [figures["entry"]]}).methods
    assert method.spec.tree == "static"
    assert method.spec.lossless
    assert len(method.spec.settings["tree"]["paths"].split()) == figures["nodes"]
    assert method.spec.settings["stop"]["gamma"] == figures["depth"]


@pytest.mark.slow
def test_a_dynamic_tree_gets_its_budget(specadapt, flags, tmp_path, monkeypatch):
    """And the table has the entry that a configuration takes."""
    from ops.models.tune import tree_runs

    monkeypatch.setattr(tree_runs, "DYNAMIC_NODES", (4, 8))
    monkeypatch.setattr(tree_runs, "DYNAMIC_K", (2, 6))
    spec = {
        "name": "dynamic",
        "drafter": "draft_model",
        "tree": "eagle2",
        "verifier": "one_hot",
        "lossless": True,
        "source": "test",
        "settings": {"stop": {"gamma": 2}},
    }
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"methods": [{"name": "dynamic", "spec": spec}]}))
    arguments = ["tune-tree", "--method", "dynamic", "--config", config, *flags]
    figures = specadapt.json(*arguments)
    assert len(figures["curve"]) == 9
    assert {"naive", "dynamic"} < figures["measured"].keys()
    settings = figures["entry"]["spec"]["settings"]
    assert settings["tree"]["nodes"] == figures["nodes"]
    assert settings["stop"]["gamma"] == figures["depth"]
    shown = specadapt(*arguments).stdout
    assert "methods:\n- name: dynamic_tuned\n  spec:" in shown


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("ngram", "--method: the drafter of 'ngram' (ngram) fills no trees"),
        ("naive", "fills no trees"),
        ("naive,ngram", "--method: give one method"),
        ("turbo", "unknown method 'turbo'"),
    ],
)
def test_methods_without_a_tree(specadapt, flags, method, said):
    assert said in specadapt.refusal("tune-tree", "--method", method, *flags)
