"""Rounds that fail: they say why, leave no files, and the next one runs."""

import shutil
from pathlib import Path

import psutil
import pytest
from stored_heads import head
from tuning_setting import Setting, files_of_at_most, tunings, wait

from deployments.drafters import trainer as training
from deployments.drafters.tuning import Tuning
from schemas import Verdict
from tests.training.counting import make_samples


@pytest.mark.slow
def test_a_failed_round_says_why_and_waits_for_new_samples(
    setting: Setting, counting_bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(counting_bundle, broken)
    (broken / "eagle3" / "config.json").unlink()
    setting.config = setting.config.model_copy(update={"bundle": broken})
    setting.samples.take(make_samples(240))
    trainer = setting.trainer()
    trainer.step()
    wait(lambda: "tuning eagle3 has failed" in caplog.text, trainer.step)
    trainer.step()
    assert "no config.json in" in caplog.text
    assert tunings() == []


def test_a_round_whose_files_cannot_be_written_leaves_none_and_the_next_one_runs(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    setting.samples.take(make_samples(240))
    setting.versions.train("eagle3")
    trainer = setting.trainer()
    with files_of_at_most(2000):
        for _ in range(2):
            trainer.step()
    assert caplog.text.count("tuning eagle3 has failed") == 1
    assert "cannot be written" in caplog.text
    assert [path.name for path in setting.folder.glob("*/*")] == ["lock"]
    assert setting.versions.in_force().training is None
    setting.versions.train("eagle3")
    trainer.step()
    (tuning,) = tunings()
    tuning.kill()


@pytest.mark.slow
def test_a_full_disk_ends_a_round_that_runs(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    setting.samples.take(make_samples(240))
    trainer = setting.trainer()
    with files_of_at_most(1_000_000):  # less than the target's states
        trainer.step()
    assert len(tunings()) == 1
    wait(lambda: "tuning eagle3 has failed" in caplog.text, trainer.step)
    assert "OSError: [Errno 27] File too large" in caplog.text
    assert [path.name for path in setting.folder.glob("*/*")] == ["lock"]


def test_a_head_is_stored_once_if_its_canary_cannot_begin_at_once(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "MOST_STARTS", 1)
    setting.samples.take(make_samples(240))
    trainer = setting.trainer()
    trainer.step()
    (tuning,) = tunings()
    tuning.kill()
    wait(lambda: not tuning.is_running() or tuning.status() == psutil.STATUS_ZOMBIE)
    (job,) = setting.folder.glob("*/job")
    head(job / "head")
    (job / "verdict.json").write_text(Verdict(better=True).model_dump_json())

    def away(*_: object) -> None:
        raise OSError("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(setting.versions, "try_out", away)
        for _ in range(2):
            trainer.step()
    assert job.exists()
    trainer.step()
    assert [version.number for version in setting.versions.all()] == [1]
    assert setting.versions.in_force().canaries["eagle3"].number == 1
    assert not job.exists()


def left_by_a_killed_trainer(setting: Setting) -> Path:
    """The folder of a round whose process was killed, and whose trainer has ended."""
    setting.samples.take(make_samples(240))
    setting.trainer().step()
    (tuning,) = tunings()
    tuning.kill()
    tuning.wait()
    (job,) = setting.folder.glob("*/job")
    return job


def test_files_that_a_killed_trainer_has_left_go_with_their_samples(setting: Setting) -> None:
    job = left_by_a_killed_trainer(setting)
    assert Tuning(job).job.parent == job.resolve() / "parent"

    setting.now += 3600.0 * setting.config.feedback.retain_hours
    second = setting.trainer()
    second.step()
    assert tunings() == []
    assert not job.exists()
    job.mkdir()
    (job / "samples.jsonl").touch()
    second.step()
    assert not job.exists(), "what is no whole job is removed"


def test_a_round_whose_actor_dies_with_it_each_time_fails(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(training, "MOST_STARTS", 2)
    setting.samples.take(make_samples(240))
    for _ in range(2):
        trainer = setting.trainer()
        trainer.step()
        (tuning,) = tunings()
        tuning.kill()
        tuning.wait()
        del trainer
    trainer = setting.trainer()
    for _ in range(2):
        trainer.step()
    assert tunings() == []
    assert "tuning eagle3 has failed" in caplog.text
    assert [path.name for path in setting.folder.glob("*/*")] == ["lock"]


def test_a_round_ends_when_it_holds_an_answer_for_too_long(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests run all the time, so that it cannot end by itself."""
    caplog.set_level("INFO")
    retained = 3600.0 * setting.config.feedback.retain_hours
    setting.samples.take(make_samples(240))
    trainer = setting.trainer()
    trainer.step()
    setting.busy = True
    trainer.hold()
    setting.now = 2.0 * retained
    trainer.step()
    assert len(tunings()) == 1
    setting.now += 1.0  # the oldest answer has the time 1
    trainer.step()
    assert tunings() == []
    assert [path.name for path in setting.folder.glob("*/*")] == ["lock"]
    assert "the round of eagle3 ends: one of its answers is 2 times as old" in caplog.text


def test_a_round_of_another_target_that_a_killed_trainer_has_left_is_removed(
    setting: Setting,
) -> None:
    job = left_by_a_killed_trainer(setting)

    setting.serve_target("another")
    setting.trainer().step()
    assert tunings() == []
    assert not job.exists()
