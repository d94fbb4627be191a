"""`specadapt trace`: a folder that is continued, refuses other settings, and gives bounds."""

import numpy as np
import pytest

from ops.routing_tables.bounds import (
    StepSeconds,
    TracedAnswer,
    bounds,
    oracle_seconds,
    read_traces,
    steps,
)
from router.fit.speedup import harmonic_mean

METHODS = "naive,ngram,draft_verify"


@pytest.fixture
def command(tiny_bundle, prompts_file, tmp_path):
    return [
        *["trace", "--out", tmp_path / "trace", "--bundle", tiny_bundle.path],
        *["--prompts", prompts_file, "--max-tokens", 12, "--dtype", "float32"],
        *["--methods", METHODS],
    ]


def test_every_prompt_is_decoded_once_and_traced_under_each_method(specadapt, command, tmp_path):
    figures = specadapt.json(*command, "--limit", 4)
    assert figures["prompts"] == 4
    assert figures["bounds"] is None
    assert list(figures["methods"]) == METHODS.split(",")
    answers = read_traces(tmp_path / "trace")
    assert len(answers) == 4
    for answer in answers:
        assert all(len(own) == len(answer.answer) - 1 for own in answer.accepted.values())
    assert figures["methods"]["naive"]["mat"] == 1.0
    tokens = sum(len(answer.answer) for answer in answers)
    taken = sum(1 + steps(answer.accepted["draft_verify"]) for answer in answers)
    assert figures["methods"]["draft_verify"]["mat"] == tokens / taken > 1.0
    assert set(figures["methods"]["ngram"]["by_domain"]) == {"edit", "math"}


def test_a_second_run_continues(specadapt, command, tmp_path):
    specadapt.json(*command, "--limit", 2)
    file = tmp_path / "trace" / "trace.jsonl"
    before = file.read_text()
    assert specadapt.json(*command, "--limit", 2)["prompts"] == 2
    assert file.read_text() == before
    file.write_text(before + '{"prompt_id": "half')
    assert specadapt.json(*command, "--limit", 4)["prompts"] == 4
    assert file.read_text().startswith(before)


def test_what_cannot_be_traced_is_one_line(specadapt, command, tmp_path):
    specadapt.json(*command, "--limit", 2)
    said = specadapt.refusal(*command, "--limit", 2, "--max-tokens", 13)
    assert "max_tokens was 12 and is 13 now; take another --out" in said
    new = ["--out", tmp_path / "new"]
    assert "lossy" in specadapt.refusal(*command, *new, "--methods", "naive,medusa_typical")
    assert "--bounds" in specadapt.refusal(*command, *new, "--methods", "naive", "--bounds")
    (tmp_path / "trace" / "trace.jsonl").write_text('{"prompt_id": 3}\n')
    assert "trace.jsonl, line 1: prompt_id" in specadapt.refusal(*command)


def test_bounds_are_in_order(specadapt, command):
    found = specadapt.json(*command, "--limit", 4, "--bounds")["bounds"]
    single = found["best_single"]
    assert single["speedup"] == max(found["fixed"].values())
    assert found["best_of_prompt"] >= single["speedup"] - 1e-9
    assert found["oracle_combine"] > 0.0


SECONDS = StepSeconds(
    whole={"naive": 1.0, "copy": 1.1, "draft": 1.4},
    drafting={"naive": 0.0, "copy": 0.0, "draft": 0.4},
    forwards=np.interp(range(9), [1, 5], [1.0, 1.2]),
)
LEVELS = {"copy": 4, "draft": 4}


def test_the_oracle_drafts_the_longest_accepted_draft():
    accepted = {"copy": [1, 0, 1, 0, 0, 0], "draft": [1, 0, 3, 0, 0, 0]}
    # two tokens of copy for 1 + 0.05, then four of draft for 1 + 0.15 + 3/4 of its 0.4
    assert oracle_seconds(accepted, SECONDS, LEVELS) == pytest.approx(1.05 + 1.45)
    assert oracle_seconds({"copy": [4, 0]}, SECONDS, LEVELS) == pytest.approx(1.05)
    with pytest.raises(ValueError, match="too many values"):
        oracle_seconds({"copy": [0, 0], "draft": [0]}, SECONDS, LEVELS)


def test_bounds_of_known_answers():
    def answer(name, copy, draft):
        accepted = {"copy": (copy,) * 12, "draft": (draft,) * 12}
        return TracedAnswer(
            prompt_id=name, domain=name[0], prompt=(1,), answer=(1,) * 13, accepted=accepted
        )

    found = bounds([answer("a1", 3, 0), answer("a2", 3, 0), answer("b1", 0, 3)], SECONDS)
    # of 12 plain steps copy takes 3 of 1.1, or 12 of 1.1; each domain counts alike
    means = {
        "copy": harmonic_mean([12 / 3.3, 12 / 13.2]),
        "draft": harmonic_mean([12 / 16.8, 12 / 4.2]),
    }
    assert found["fixed"] == pytest.approx(means)
    assert found["best_single"] == {"name": "copy", "speedup": found["fixed"]["copy"]}
    assert found["best_of_prompt"] == pytest.approx(harmonic_mean([12 / 3.3, 12 / 4.2]))
    # drafting three tokens costs 0.15, and of draft 0.4 more: three is the most it drafts
    assert found["oracle_combine"] == pytest.approx(harmonic_mean([12 / 3.45, 12 / 4.65]))
