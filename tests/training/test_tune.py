"""Tuning a head on the target's own answers: what is accepted, refused, kept and resumed."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from schemas import HeadPart, Sample, TuningJob, Verdict
from tests.training.counting import emptied, write_replay
from training import tune as tuning
from training.heads import StoredHead, load_head
from training.judge import judge
from training.teacher import Teacher

PARTS = ("eagle3", pytest.param("eagle", marks=pytest.mark.slow), "medusa")


@pytest.mark.parametrize("part", PARTS)
def test_a_tuned_head_is_better_and_a_spoilt_one_is_refused(
    part, bundle, samples, tmp_path, monkeypatch
):
    if part == "medusa":  # an untrained one learns little in so few steps
        monkeypatch.setattr(tuning, "LEARNING_RATE", 0.02)
    job = _job(part, bundle, samples, tmp_path)
    found = tuning.run_job(job, report=lambda _: None)
    assert found.better, found.reason
    assert found.overall is not None
    assert found.overall.candidate > found.overall.parent
    assert {"cluster 0", "cluster 1", "temperature 0", "sampled"} == set(found.by_group)
    words = StoredHead(job.out, part).vocabulary
    assert words is not None
    assert words.tolist() == list(range(6, 64))

    spoilt = _judged(job, samples, emptied(job.out, tmp_path / "spoilt"), job.out)
    assert not spoilt.better
    assert spoilt.overall is not None
    assert spoilt.overall.high < 0
    same = _judged(job, samples, job.out, job.out)
    assert same.reason is not None
    assert "not better" in same.reason


@pytest.mark.slow
def test_a_new_head_has_to_beat_look_ups(bundle, samples, tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "LEAST_WORDS", 2)
    job = _job("eagle3", bundle, samples, tmp_path, tokens=100_000, young=True)
    job = job.model_copy(update={"parent": None})
    found = tuning.run_job(job, report=lambda _: None)
    assert found.better, found.reason
    assert found.overall is not None
    words = StoredHead(job.out, "eagle3").vocabulary
    assert words is not None
    seen = [token for s in samples if not s.held for token in s.answer_token_ids]
    known = {*words.tolist()}
    assert sum(token in known for token in seen) >= tuning.COVERED * len(seen)

    spoilt = _judged(job, samples, emptied(job.out, tmp_path / "spoilt"), None)
    assert spoilt.overall is not None
    assert spoilt.overall.parent == found.overall.parent < found.overall.candidate
    assert spoilt.reason is not None
    assert "not better than look-ups by 10%" in spoilt.reason


def test_an_interrupted_job_gives_the_same_head(bundle, samples, tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "CHECKPOINT_SECONDS", 0.0)
    teacher = Teacher.load(bundle / "target")
    whole = _job("eagle3", bundle, samples, tmp_path / "whole", tokens=12_000, young=True)
    tuning.tune(teacher, whole, lambda _: None)
    job = _job("eagle3", bundle, samples, tmp_path / "cut", tokens=12_000, young=True)
    with pytest.raises(InterruptedError):
        tuning.tune(teacher, job, _interrupt)
    assert not job.out.exists()
    told: list[str] = []
    tuning.tune(teacher, job, told.append)
    assert any(line.startswith("resumed at step") for line in told)
    expected = load_file(whole.out / "model.safetensors")
    for name, weight in load_file(job.out / "model.safetensors").items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=0)


def test_replayed_answers_are_trained_on_and_judged_as_a_group(bundle, samples, tmp_path):
    replay = write_replay(samples, ["a"] * len(samples), tmp_path / "replay.jsonl")
    served = [*samples[:2], *(s for s in samples if s.held)]
    job = _job("eagle3", bundle, served, tmp_path / "job", tokens=500)
    job = job.model_copy(update={"replay": replay})
    told: list[str] = []
    found = tuning.run_job(job, told.append)
    assert found.by_group["replay"].conversations == len([s for s in samples if s.held])
    # Three tenths of the trained tokens are the replay's, drawn from all of it.
    (texts,) = (line for line in told if " texts, a pass is " in line)
    trained = len([s for s in served if not s.held]) + len([s for s in samples if not s.held])
    assert texts.startswith(f"{trained} texts")


def _interrupt(line: str) -> None:
    if line.startswith("step="):
        raise InterruptedError


def _job(
    part: HeadPart,
    bundle: Path,
    samples: list[Sample],
    folder: Path,
    tokens: int = 300_000,
    young: bool = False,
) -> TuningJob:
    """A young head's steps are small ones."""
    folder.mkdir(exist_ok=True)
    for name, held in (("held", True), ("samples", False)):
        lines = [s.model_dump_json() + "\n" for s in samples if s.held == held]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return TuningJob(
        part=part,
        target=bundle / "target",
        parent=bundle / part,
        folder=folder,
        tokens=tokens,
        young=young,
    )


def _judged(job: TuningJob, samples: list[Sample], candidate: Path, parent: Path | None) -> Verdict:
    teacher = Teacher.load(job.target)
    before, after = (
        folder and load_head(StoredHead(folder, job.part), teacher)
        for folder in (parent, candidate)
    )
    assert after is not None
    return judge(teacher, before, after, [s for s in samples if s.held])
