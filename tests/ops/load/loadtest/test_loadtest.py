"""`specadapt loadtest` on a real service over a real socket, and its figures."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.load.loadtest.figures import Answered, Target, summary


def test_a_service_under_load(specadapt, listening, prompts_file, tmp_path):
    file = tmp_path / "load.json"
    result = specadapt(
        *["loadtest", "--url", listening, "--rate", 50, "--requests", 12, "--max-tokens", 6],
        *["--prompts", prompts_file, "--ttft-slo", 600, "--tpot-slo", 600, "--json", file],
    )
    assert result.exit_code == 0, result.stderr
    assert "goodput" in result.stdout
    figures = json.loads(file.read_text())
    assert figures["requests"] == figures["answered"] == len(figures["timeline"]) == 12
    assert figures["errors"] == {}
    assert figures["good_share"] == 1.0
    assert figures["settings"]["model"] == "tiny"
    for one in figures["timeline"]:
        assert one["engine"]["total_seconds"] <= one["seconds"]
        assert 1 <= one["engine"]["target_steps"] <= one["tokens"] <= 6
    assert 0 < figures["ttft_s"]["p50"] <= figures["ttft_s"]["p99"] <= figures["latency_s"]["p99"]


def test_a_trace_sets_the_arrivals(specadapt, listening, prompts_file, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps({"timestamp": 1000 * t}) + "\n" for t in (0, 1, 3, 4)))
    figures = specadapt.json(
        *["loadtest", "--url", listening, "--rate", 40, "--requests", 4, "--max-tokens", 2],
        *["--prompts", prompts_file, "--trace", trace],
    )
    dues = [answer["due"] for answer in figures["timeline"]]
    assert dues == pytest.approx([0.0, 0.75 / 40, 2.25 / 40, 3.0 / 40], abs=1e-4)


def test_who_does_not_answer_is_said(specadapt, listening, prompts_file):
    asked = ["loadtest", "--rate", 50, "--requests", 2, "--prompts", prompts_file]
    assert "no service answers" in specadapt.refusal(*asked, "--url", "http://127.0.0.1:9")
    refused = specadapt.refusal(*asked, "--url", listening, "--model", "nobody")
    assert "none of 2 requests was answered: 404" in refused


ANSWERS = st.builds(
    Answered,
    due=st.floats(0.1, 100),
    sent=st.floats(100, 200),
    ttft=st.floats(0.01, 10),
    tpot=st.none() | st.floats(0.001, 1),
    seconds=st.floats(10, 20),
    tokens=st.integers(1, 100),
    error=st.none() | st.sampled_from(["429", "ReadTimeout"]),
)


@given(st.lists(ANSWERS, min_size=2, max_size=30), st.floats(0.01, 10), st.floats(0.001, 1))
def test_goodput_is_what_keeps_to_both_objectives(answers, ttft, tpot):
    found = summary(answers, 50.0, Target(ttft, tpot))
    good = [
        a
        for a in answers
        if a.error is None and a.ttft <= ttft and (a.tpot is None or a.tpot <= tpot)
    ]
    assert found["good_share"] == pytest.approx(len(good) / len(answers))
    assert found["goodput_per_s"] == pytest.approx(len(good) / 50.0)
    assert sum(found["errors"].values()) + found["answered"] == found["requests"] == len(answers)
    anything = summary(answers, 50.0, Target(None, None))
    assert anything["good_share"] == pytest.approx(found["answered"] / len(answers))
