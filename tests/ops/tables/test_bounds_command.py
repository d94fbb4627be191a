"""`specadapt bench bounds`: traces and measured steps to the speedups that could be reached."""

import json

import pytest

METHODS = "naive,ngram,suffix"


@pytest.fixture
def traced(specadapt, tiny_bundle, prompts_file, tmp_path):
    """The command over a trace of six prompts."""
    common = ["--bundle", tiny_bundle.path, "--dtype", "float32", "--max-tokens", 16]
    made = ["trace", "--out", tmp_path / "trace", "--prompts", prompts_file, "--limit", 6]
    specadapt.json(*made, *common, "--methods", METHODS)
    bench = ["bench", "bounds", "--traces", tmp_path / "trace", "--threads", 1]
    return [*bench, *common, "--methods", METHODS]


def test_bounds_of_traced_answers(specadapt, traced):
    figures = specadapt.json(*traced)
    assert set(figures["fixed"]) == set(figures["oracle_length"]) == {"ngram", "suffix"}
    assert figures["best_single"]["speedup"] == max(figures["fixed"].values())
    assert figures["best_schedule"] >= figures["oracle_combine"] - 1e-9
    assert figures["best_of_prompt"] >= figures["best_single"]["speedup"] - 1e-9
    assert sum(found["answers"] for found in figures["by_domain"].values()) == figures["answers"]
    assert figures["settings"]["forward_ms"]["1"] > 0.0


@pytest.mark.slow
def test_the_share_that_decoding_reached(specadapt, traced, prompts_file, tmp_path):
    ids = tmp_path / "ids.txt"
    decoded = tmp_path / "decoded.json"
    named = specadapt.json(*traced)["settings"]["prompts"]["ids"]
    ids.write_text("\n".join(named))
    bench = ["bench", "decode", *traced[4:], "--peers", "none", "--repeats", 1, "--ids", ids]
    decode = specadapt.json(*bench, "--prompts", prompts_file)
    decoded.write_text(json.dumps(decode))
    figures = specadapt.json(*traced, "--ids", ids, "--decoded", decoded)
    reached = figures["reached"]["suffix"]
    assert reached["answers"] == figures["answers"]
    over = decode["methods"]["suffix"]["decode_speedup_by_prompt"].values()
    assert min(over) <= reached["speedup"] <= max(over)
    bound = figures["by_domain"]["math"]["oracle_combine"]
    inside = reached["by_domain"]["math"]
    assert inside["oracle_combine"] == pytest.approx(inside["speedup"] / bound)
    assert figures["reached"]["naive"]["speedup"] == pytest.approx(1.0)


def test_another_bundle_is_refused(specadapt, traced):
    traced[traced.index("--bundle") + 1] = "bundles/demo"
    assert "--traces: made with" in specadapt.refusal(*traced)
