"""`specadapt bench stages`: what a step's stages are made of, and the command on a tiny bundle."""

import pytest

from ops.bench.stage_runs import step_of
from ops.harness.decoding import Answer
from schemas import DecodeStats


def answer(steps, **seconds):
    stats = DecodeStats(
        request_id="r",
        method="m",
        temperature=0.0,
        prompt_tokens=3,
        output_tokens=1 + 2 * steps,
        target_steps=steps + 1,
        mean_batch=2.0,
        **{"finish_reason": "length", "context_length": 20, **seconds},
    )
    return Answer("", (), 1.0, 0.1, stats)


def test_a_step_is_counted_once_for_the_sequences_that_share_it():
    shared = {"draft_seconds": 1.0, "verify_seconds": 2.0, "sample_seconds": 0.5}
    shared |= {"other_seconds": 0.8, "stalled_seconds": 0.3}
    step = step_of([answer(10, **shared), answer(10, **shared)])
    expected = {"draft_ms": 100.0, "verify_ms": 200.0, "sample_ms": 50.0, "host_ms": 80.0}
    assert {key: step[key] for key in expected} == pytest.approx(expected)
    assert step["step_ms"] == pytest.approx(430.0)
    assert step["tokens_per_step"] == pytest.approx(2.0)
    assert step["mean_batch"] == pytest.approx(2.0)


def test_the_command_measures_every_batch(specadapt, tiny_bundle, prompts_file):
    common = ["--bundle", tiny_bundle.path, "--prompts", prompts_file, "--threads", 1]
    common += ["--dtype", "float32", "--methods", "naive,ngram", "--max-tokens", 12]
    figures = specadapt.json("bench", "stages", *common, "--batches", "1,3")
    assert set(figures["stages"]) == {"naive", "ngram"}
    for by_batch in figures["stages"].values():
        for batch, step in by_batch.items():
            assert 1.0 <= step["mean_batch"] <= float(batch)
            assert step["verify_ms"] > 0.0
    assert figures["stages"]["naive"]["1"]["tokens_per_step"] == 1.0
    assert "--batches: whole numbers of 1" in specadapt.refusal(
        *["bench", "stages", *common, "--batches", "0"]
    )
    assert "--max-tokens must be at least 2" in specadapt.refusal(
        *["bench", "stages", *common, "--max-tokens", 1]
    )
