"""Arguments of an engine whose methods share vLLM's second model runner."""

import json

import pytest
from conftest_bundle import DEMO

from schemas import EngineConfig
from workers.bundle import load_bundle
from workers.methods import get_method
from workers.vllm_engine import shared
from workers.vllm_engine.drafting.portfolio import KEY, Portfolio
from workers.vllm_engine.environment import RUNNER, process_environment
from workers.vllm_engine.front_door import serve_command


@pytest.fixture(autouse=True)
def _second(monkeypatch):
    monkeypatch.setenv(RUNNER, "1")
    for name in ("require", "require_release"):
        monkeypatch.setattr(f"workers.vllm_engine.front_door.{name}", lambda *_: None)


def arguments(*names: str):
    """Its speculative_config, and the portfolio that its processes are told."""
    bundle, specs = load_bundle(DEMO), [get_method(name) for name in names]
    config = shared.additional_config(specs, bundle)
    return shared.speculative_config(specs, bundle), Portfolio.from_config(config[KEY])


def test_vllm_drafts_ngrams_on_the_device():
    options, portfolio = arguments("vllm_naive", "vllm_ngram", "vllm_suffix")
    assert options["method"] == portfolio.drafters["ngram"]["method"] == "ngram_gpu"
    assert options["prompt_lookup_max"] == portfolio.drafters["ngram"]["prompt_lookup_max"]
    assert portfolio.host is None


def test_suffixes_alone_have_a_host_too():
    options, portfolio = arguments("vllm_naive", "vllm_suffix")
    assert options["method"] == "ngram_gpu"
    assert options["num_speculative_tokens"] == portfolio.methods["vllm_suffix"].schedule.gamma(1)
    assert set(portfolio.drafters) == {"suffix"}


def test_a_head_is_the_host():
    options, portfolio = arguments("vllm_ngram", "vllm_eagle3")
    assert options["method"] == portfolio.host == "eagle3"


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("vllm_naive", "vllm_adaptive"), "vllm_adaptive: .* not adaptive"),
        (("vllm_naive", "vllm_medusa"), "vllm_medusa: .* not medusa"),
        (("vllm_ngram", "vllm_draft"), "vllm_draft: .* not draft_model"),
        (("vllm_eagle3", "vllm_eagle"), "vllm_eagle: .* one drafter with KV, and eagle3 is one"),
    ],
)
def test_other_methods_are_refused_by_name(names, reason):
    with pytest.raises(ValueError, match=f"{reason}.*unset {RUNNER}"):
        arguments(*names)


def test_the_first_runner_is_taken_unless_the_second_is_asked_for(monkeypatch):
    config = EngineConfig(device="cpu")
    assert process_environment(config, shared=True)[RUNNER] == "1"
    assert "async_scheduling" not in shared.engine_arguments(), "vLLM's choice"
    for value in ("0", None):
        monkeypatch.setenv(RUNNER, value) if value else monkeypatch.delenv(RUNNER)
        assert process_environment(config, shared=True)[RUNNER] == "0"
        assert shared.engine_arguments().keys() == {"worker_cls", "async_scheduling"}


def test_vllm_serve_schedules_ahead_and_has_no_adaptive_method():
    command = serve_command(str(DEMO), ["ngram", "eagle3"], "ngram", [])
    words = command.arguments
    assert command.environment[RUNNER] == "1"
    assert "--no-async-scheduling" not in words
    assert words[words.index("--scheduler-cls") + 1] == shared.SCHEDULER
    config = json.loads(words[words.index("--additional-config") + 1])
    assert set(Portfolio.from_config(config[KEY]).methods) == {"ngram", "eagle3"}
    with pytest.raises(ValueError, match="'adaptive' is not served"):
        serve_command(str(DEMO), ["ngram"], "adaptive", [])
