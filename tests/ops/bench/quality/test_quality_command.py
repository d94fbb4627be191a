"""`bench quality` on the demo family: the dial, from decoding to the figures."""

import json

import pytest
from conftest_bundle import DEMO

ROWS = [
    {"id": "a", "domain": "math", "prompt": "What is 12 + 30?", "response": "42\n#### 42"},
    {"id": "b", "domain": "math", "prompt": "Solve for y: 2y + 8 = 20", "response": "#### 6"},
    {"id": "c", "domain": "dialogue", "prompt": "I need a table for two tonight."},
    {"id": "d", "domain": "edit", "prompt": "Fix the typos: teh cat sat on teh mat and slept."},
]


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    file = tmp_path_factory.mktemp("quality") / "prompts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return file


@pytest.mark.slow
def test_a_dial_says_what_speed_costs(specadapt, prompts):
    common = ["bench", "quality", "--bundle", DEMO, "--prompts", prompts, "--threads", 1]
    common += ["--dtype", "float32", "--max-tokens", 32]
    dials = ["--dial", "threshold=0.0,0.69", "--dial", "epsilon=0.09"]
    figures = specadapt.json(*common, *dials)
    found = figures["quality"]
    assert list(found) == [
        *("naive", "fuzzy_lossless", "fuzzy_threshold_0", "fuzzy_threshold_0_69"),
        *("medusa_typical_lossless", "medusa_typical_epsilon_0_09"),
    ]
    greedy = {name: own["by_temperature"].get("0") for name, own in found.items()}
    assert greedy["medusa_typical_epsilon_0_09"] is None
    for name in ("naive", "fuzzy_lossless", "medusa_typical_lossless", "fuzzy_threshold_0"):
        assert (greedy[name]["match_rate"], greedy[name]["same_number"]) == (1.0, 1.0)
        assert greedy[name]["excess_nats"] == pytest.approx(0.0, abs=1e-4)
    # every draft is kept: the answer is the draft model's
    loose = greedy["fuzzy_threshold_0_69"]
    assert loose["match_rate"] < 1.0
    assert loose["tokens_before_divergence"] < 1.0
    assert loose["excess_nats_ci95"][0] > 0.01
    assert loose["mat"] > greedy["fuzzy_lossless"]["mat"] > greedy["naive"]["mat"] == 1.0
    assert (loose["graded"], loose["kl_at_least"]) == (2, None)
    warm = {name: own["by_temperature"]["0.8"] for name, own in found.items()}
    assert warm["fuzzy_threshold_0_69"]["excess_nats"] > 0.1
    assert all(own["match_rate"] is None for own in warm.values())
    assert all(own["kl_at_least"] < 0.1 for own in (warm["naive"], warm["fuzzy_lossless"]))


def test_requests_at_once_are_answered_alike(specadapt, prompts):
    common = ["bench", "quality", "--bundle", DEMO, "--prompts", prompts, "--threads", 1]
    common += ["--dtype", "float32", "--max-tokens", 12, "--temperatures", "0"]
    figures = specadapt.json(
        *common, "--methods", "ngram,fuzzy", "--dial", "threshold=0.4", "--concurrency", 4
    )
    exact = ("naive", "ngram", "fuzzy_lossless")
    assert [figures["quality"][n]["by_temperature"]["0"]["match_rate"] for n in exact] == [1.0] * 3


def test_bad_input_is_named(specadapt, prompts):
    command = ["bench", "quality", "--bundle", DEMO, "--prompts", prompts]
    assert "--methods: none is lossy" in specadapt.refusal(*command, "--methods", "ngram")
    assert "--dial: 'gamma'" in specadapt.refusal(*command, "--dial", "gamma=2")
    assert "--temperatures" in specadapt.refusal(*command, "--temperatures", "0,hot")
    assert "--temperatures" in specadapt.refusal(*command, "--temperatures", "-1")
    assert "decides nothing" in specadapt.refusal(*command, "--dial", "threshold=0.9")
