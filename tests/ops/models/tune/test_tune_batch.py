"""`tune-batch` on a tiny bundle: the real engine, real step times."""

from dataclasses import replace
from pathlib import Path

import pytest

from ops.harness.engines import portfolios
from ops.harness.settings import Setup
from ops.models.tune.batch_choice import gammas_for
from ops.models.tune.batch_runs import BatchTask, own_gamma, scheduled
from schemas import AppConfig, EngineConfig, MethodSpec
from workers.batch_schedule import BatchSchedule
from workers.methods import get_method

SMALL = ["--dtype", "float32", "--max-tokens", 24, "--limit", 4, "--rounds", 2]
SIZES = ["--batches", "1,3", "--gammas", "0,2,4"]


@pytest.fixture
def flags(tiny_bundle, prompts_file):
    return ["--bundle", tiny_bundle.path, "--prompts", prompts_file, *SMALL]


@pytest.mark.slow
def test_the_schedule_is_what_was_measured_to_be_best(specadapt, flags):
    figures = specadapt.json("tune-batch", "--methods", "draft_verify", *SIZES, *flags)
    tuned = figures["methods"]["draft_verify"]
    tokens = {row["gamma"]: row["tokens_per_step"] for row in tuned["acceptance"]}
    assert tokens[0] == 1.0 < tokens[2] <= tokens[4] <= 5.0
    rates = {}
    for row in tuned["grid"]:
        assert row["step_ms"] > 0
        assert row["spread"] >= 1.0
        emitted = row["batch"] * tokens[row["gamma"]]
        assert row["tokens_per_s"] == pytest.approx(1e3 * emitted / row["step_ms"])
        rates[row["batch"], row["gamma"]] = row["tokens_per_s"]
    assert rates.keys() == {(b, g) for b in (1, 3) for g in (0, 2, 4)}
    schedule = BatchSchedule(*map(tuple, tuned["schedule"].values()))
    one, three = tuned["planned"]
    assert [one, three] == [schedule.gamma(1), schedule.gamma(3)]
    # what rises may be better still, where the rounds agree
    falling = [rates[1, a] * rates[3, b] for a in tokens for b in tokens if b <= a]
    assert rates[1, one] * rates[3, three] >= 0.999 * max(falling)
    assert [row["batch"] for row in tuned["plain"]] == [1, 3]
    assert tuned["measured"].keys() == {"plain", "as it is", "schedule"}
    assert all(rate > 0 for rates in tuned["measured"].values() for rate in rates.values())
    assert tuned["ranges"][0][0] == 1
    assert tuned["ranges"][-1][1] == 8  # the engine's largest batch
    [method] = AppConfig.model_validate({"methods": [tuned["entry"]]}).methods
    assert method.spec.stop == "batch_schedule"
    assert method.spec.settings["stop"] == {
        "batches": schedule.batches,
        "gammas": schedule.gammas,
    }


@pytest.mark.slow
def test_the_entry_is_a_configuration_that_decodes(specadapt, flags, tmp_path):
    """And the table that people get has it."""
    arguments = ["tune-batch", "--methods", "ngram", "--batches", "1,2", "--gammas", "0,2", *flags]
    shown = specadapt(*arguments).stdout
    entry = shown[shown.index("methods:\n") :]
    config = tmp_path / "config.yaml"
    config.write_text(entry)
    bundle = flags[:2]
    answered = specadapt.json(
        *["generate", "--method", "ngram", "--prompt", "a b c a b c", "--config", config, *bundle]
    )
    assert answered["stats"]["output_tokens"] > 0
    assert "num_speculative_tokens_per_batch_size: [[1, " in shown


def task_of(method: MethodSpec, *, shared: bool = False) -> BatchTask:
    setup = Setup(Path("bundle"), (method,), EngineConfig(), shared)
    gammas = gammas_for(method, None)
    return BatchTask(setup, None, method, (), (1, 4), gammas, 8, 0.0, 2, 0)


@pytest.mark.parametrize(
    ("name", "gammas"),
    [
        ("draft_verify", [0, 1, 2, 4, 6]),
        ("ngram", [0, 1, 2, 4, 6, 8]),
        ("medusa", [0, 1, 2, 3]),
        ("specinfer", [0, 1, 2, 4]),
        ("vllm_mtp", [0, 1, 2, 4, 6]),
    ],
)
def test_the_methods_own_number_is_among_those_compared(name, gammas):
    assert gammas_for(get_method(name), None) == gammas


def test_a_method_that_has_a_schedule_is_what_it_is_alone():
    schedule = BatchSchedule((1, 4), (5, 2))
    method = scheduled(get_method("draft_verify"), schedule, "draft_verify")
    assert own_gamma(method) == 5
    assert gammas_for(method, [1]) == [1, 5]


@pytest.mark.parametrize(
    ("name", "shared", "engines"),
    [
        ("ngram", False, [["ngram_0", "ngram_2", "ngram_8"]]),
        ("vllm_ngram", False, [["vllm_naive"], ["vllm_ngram_2"], ["vllm_ngram_8"]]),
        ("vllm_ngram", True, [["vllm_naive", "vllm_ngram_2", "vllm_ngram_8"]]),
    ],
)
def test_vllm_has_one_number_of_draft_tokens_per_engine(name, shared, engines):
    """But for the layout in which methods share it; without drafts it is the plain method."""
    task = task_of(get_method(name), shared=shared)
    specs = tuple(task.with_gamma(gamma) for gamma in (0, 2, 8))
    loaded = portfolios(replace(task.setup, methods=specs))
    assert [[spec.name for spec in group] for group in loaded] == engines


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--methods", "naive"], "--methods: 'naive' does not draft"),
        (["--methods", "turbo"], "unknown method 'turbo'"),
        (["--methods", "ngram", "--batches", "0,4"], "--batches: whole numbers of 1"),
        (["--methods", "ngram", "--gammas", "one"], "--gammas: whole numbers of 0"),
        (["--methods", "ngram", "--gammas", "-1"], "--gammas: whole numbers of 0"),
        (["--methods", "medusa", "--gammas", "1,9"], "the tree of 'medusa' has 3 levels"),
        (["--methods", "vllm_suffix"], "vLLM's suffix drafts the same number of tokens"),
        (["--methods", "ngram", "--batches", "9"], "--batches: 9 sequences take 18432 tokens"),
    ],
)
def test_what_cannot_be_tuned(specadapt, flags, arguments, said):
    assert said in specadapt.refusal("tune-batch", *arguments, *flags)
