"""`bench routed` over a real socket and engine, and on the service that it starts on Ray."""

import pytest
import yaml

from ops.bench.routed.service import cold_service
from ops.harness.settings import Setup
from schemas import AppConfig
from workers.methods import get_method

METHODS = {"naive", "ngram"}


def test_every_prompt_is_asked_routed_and_pinned(specadapt, listening, prompts_file):
    figures = specadapt.json(
        *["bench", "routed", "--url", listening, "--prompts", prompts_file],
        *["--limit", 4, "--max-tokens", 12],
    )
    assert (figures["prompts"], figures["errors"]) == (4, 0)
    assert 1 <= figures["counted"] <= 4
    assert figures["methods"].keys() == METHODS
    assert figures["methods"]["naive"]["mat"] == 1.0
    speeds = {name: method["tokens_per_s"] for name, method in figures["methods"].items()}
    best = figures["best_single"]
    assert best == {"name": max(speeds, key=speeds.get), "tokens_per_s": max(speeds.values())}
    ratio = figures["routed"]["tokens_per_s"] / best["tokens_per_s"]
    assert abs(figures["routed_over_best_single"] / ratio - 1.0) < 1e-9
    low, high = figures["routed_over_best_single_ci95"]
    assert low <= figures["routed_over_best_single"] <= high
    assert figures["oracle"]["tokens_per_s"] > 0.0
    assert figures["same_text"] == 1.0
    assert sum(figures["reasons"].values()) == 8
    assert "pinned" not in figures["reasons"]
    assert sum(figures["chosen"].values()) == 8
    assert figures["settings"]["started_by"] == "others"
    assert len(figures["settings"]["tables_at_the_end"]) == 2


def test_answers_may_be_sampled(specadapt, listening, prompts_file):
    figures = specadapt.json(
        *["bench", "routed", "--url", listening, "--prompts", prompts_file, "--limit", 2],
        *["--max-tokens", 40, "--temperature", 0.5, "--methods", "ngram", "--repeats", 1],
    )
    assert figures["same_text"] is None
    assert figures["oracle"] is None
    assert figures["methods"].keys() == {"ngram"}


def test_people_get_tables(specadapt, listening, prompts_file):
    result = specadapt(
        *["bench", "routed", "--url", listening, "--prompts", prompts_file],
        *["--limit", 1, "--max-tokens", 12, "--repeats", 1],
    )
    assert result.exit_code == 0, result.stderr
    for said in ("routed over best single", "routed by reason: preferred 1", "1 of 1 prompts"):
        assert said in result.stdout


def test_what_cannot_be_measured_is_refused(specadapt, listening, prompts_file):
    command = ["bench", "routed", "--url", listening, "--prompts", prompts_file]
    assert "--max-tokens" in specadapt.refusal(*command, "--max-tokens", 7)
    said = specadapt.refusal(*command, "--methods", "ngram,eagle")
    assert "--methods: eagle is not served; available methods: naive, ngram" in said
    assert "--url" in specadapt.refusal("bench", "routed", "--url", "http://127.0.0.1:9")


def test_requests_that_fail_are_counted(specadapt, listening, prompts_file, tmp_path):
    file = tmp_path / "prompts.jsonl"
    long = '{"id": "long", "domain": "math", "prompt": "' + "many words " * 600 + '"}\n'
    file.write_text(prompts_file.read_text() + long)
    (tmp_path / "ids.txt").write_text("long math-0")
    out = tmp_path / "out.json"
    result = specadapt(
        *["bench", "routed", "--url", listening, "--prompts", file, "--ids", tmp_path / "ids.txt"],
        *["--max-tokens", 12, "--repeats", 1, "--json", out],
    )
    assert result.exit_code == 0, result.stderr
    figures = yaml.safe_load(out.read_text())
    assert (figures["prompts"], figures["counted"], figures["errors"]) == (2, 1, 3)
    assert "long: 400" in result.stderr


@pytest.mark.slow
def test_a_service_that_is_started_has_the_named_methods_and_keeps_no_prefix(
    specadapt, served_config, prompts_file, tmp_path
):
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(served_config.model_dump(mode="json")))
    figures = specadapt.json(
        *["bench", "routed", "--config", file, "--prompts", prompts_file, "--limit", 2],
        *["--max-tokens", 12, "--repeats", 1, "--methods", "ngram"],
    )
    assert figures["errors"] == 0
    assert figures["chosen"] == {"ngram": 2}
    settings = figures["settings"]
    assert settings["started_by"] == "this command"
    assert settings["arms_apart"]
    assert settings["methods"].keys() == {"ngram"}
    assert settings["engine"]["prefix_cache"] is False
    assert settings["dtype"] == "float32"


def test_a_default_method_that_is_left_out_is_the_default_no_more(tiny_bundle):
    settings = AppConfig.model_validate({"router": {"default_method": "ngram"}})
    for name, default in (("ngram", "ngram"), ("naive", None)):
        setup = Setup(tiny_bundle.path, (get_method(name),), settings.engine)
        cold = cold_service(settings, setup)
        assert AppConfig.model_validate(cold.model_dump()).router.default_method == default
        assert [method.name for method in cold.methods] == [name]
        assert not cold.engine.prefix_cache
