"""Rounds that fail: they say why, leave no files, and the next one runs."""

import shutil
from pathlib import Path

import psutil
import pytest
from stored_heads import head
from tuning_setting import Setting, files_of_at_most, tunings, wait

from deployments.drafters import trainer as training
from deployments.drafters.past_rounds import PastRounds
from deployments.drafters.tuning import Tuning
from schemas import Gain, Verdict
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


def test_a_round_that_takes_its_files_along_each_time_fails(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on Kubernetes, where an evicted pod loses the cache of its node."""
    monkeypatch.setattr(training, "MOST_STARTS", 2)
    for _ in range(2):
        shutil.rmtree(left_by_a_killed_trainer(setting))
    trainer = setting.trainer()
    for _ in range(2):
        trainer.step()
    assert tunings() == []
    assert "tuning eagle3 has failed" in caplog.text
    assert setting.versions.in_force().training is None


def refused(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round whose process has ended, and whose head was refused."""
    monkeypatch.setattr(training, "MOST_STARTS", 1)
    job = left_by_a_killed_trainer(setting)
    (job / "verdict.json").write_text(Verdict(better=False, reason="worse").model_dump_json())


def test_a_refused_round_is_remembered_by_the_next_trainer(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(setting, monkeypatch)
    trainer = setting.trainer()
    for _ in range(2):
        trainer.step()
    assert not list(setting.folder.glob("*/job"))
    setting.trainer().step()
    assert tunings() == [], "it would be the same round"
    assert PastRounds(setting.versions).of("eagle3").in_vain == 1


def test_a_round_that_has_ended_does_not_begin_again_after_the_store_was_away(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(setting, monkeypatch)
    trainer = setting.trainer()
    trainer.step()

    def away(*_: object) -> None:
        raise OSError("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(setting.versions, "train", away)
        trainer.step()
    for _ in range(2):
        trainer.step()
    assert tunings() == []
    assert setting.versions.in_force().training is None


def test_what_another_service_has_left_goes_with_its_samples(
    setting: Setting, counting_bundle: Path, tmp_path: Path
) -> None:
    """A service of another bundle works in another folder, and nobody comes back to this one."""
    left = left_by_a_killed_trainer(setting)
    moved = shutil.copytree(counting_bundle, tmp_path / "moved")
    setting.config = setting.config.model_copy(update={"bundle": moved})
    setting.versions.pause(True)
    trainer = setting.trainer()
    trainer.step()
    assert left.exists()
    setting.now += 2.0 * 3600.0 * setting.config.feedback.retain_hours
    trainer.step()
    assert not left.exists()


def test_another_head_of_the_same_answers_is_another_version(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training was asked for again, after the replayed answers have changed for example."""
    monkeypatch.setattr(training, "MOST_STARTS", 1)
    for number, gain in ((1, 1.1), (2, 1.2)):
        job = left_by_a_killed_trainer(setting)
        head(job / "head")
        overall = Gain(conversations=20, parent=1.0, candidate=gain, low=0.1, high=0.2)
        (job / "verdict.json").write_text(Verdict(better=True, overall=overall).model_dump_json())
        trainer = setting.trainer()
        for _ in range(2):
            trainer.step()
        assert setting.versions.in_force().canaries["eagle3"].number == number
        setting.versions.roll_back("eagle3")
        setting.versions.train("eagle3")
        del trainer  # it has the folder's lock
