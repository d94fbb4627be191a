"""Rounds that fail: they say why, leave no files, and the next one runs."""

import shutil
from pathlib import Path

import pytest
from stored_heads import head
from tuning_setting import Setting, files_of_at_most, tunings, wait

from deployments.head_training import trainer as training
from schemas import Verdict
from tests.training.counting import make_samples


@pytest.mark.slow
def test_a_failed_round_says_why_and_waits_for_new_samples(
    setting, counting_bundle, tmp_path, caplog
):
    broken = tmp_path / "broken"
    shutil.copytree(counting_bundle, broken)
    (broken / "eagle3" / "config.json").unlink()
    setting.config = setting.config.model_copy(update={"bundle": broken})
    trainer = setting.begin()
    wait(lambda: "tuning eagle3 has failed" in caplog.text, trainer.step)
    trainer.step()
    assert "no config.json in" in caplog.text
    assert tunings() == []


def test_a_round_whose_files_cannot_be_written_leaves_none_and_the_next_one_runs(setting, caplog):
    setting.samples.take(make_samples(240))
    setting.versions.train("eagle3")
    trainer = setting.trainer()
    with files_of_at_most(2000):
        for _ in range(2):
            trainer.step()
    assert caplog.text.count("tuning eagle3 has failed") == 1
    assert "cannot be written" in caplog.text
    assert setting.files_left() == ["lock"]
    assert setting.versions.in_force().training is None
    setting.versions.train("eagle3")
    trainer.step()
    (tuning,) = tunings()
    tuning.kill()


def left_by_a_killed_trainer(setting: Setting) -> Path:
    """The folder of a round whose process was killed, and whose trainer has ended."""
    setting.begin()
    (tuning,) = tunings()
    tuning.kill()
    tuning.wait()
    return setting.job()


def away(*_: object) -> None:
    raise OSError("the store is away")


def test_a_better_head_is_kept_while_the_store_is_away(setting, monkeypatch):
    job = left_by_a_killed_trainer(setting)
    head(job / "head")
    (job / "verdict.json").write_text(Verdict(better=True).model_dump_json())
    trainer = setting.trainer()
    with monkeypatch.context() as patched:
        patched.setattr(setting.versions, "add", away)
        for _ in range(2):
            trainer.step()
    assert job.exists()
    trainer.step()
    assert [version.number for version in setting.versions.all()] == [1]
    assert setting.versions.in_force().canaries["eagle3"].number == 1
    assert not job.exists()


@pytest.mark.parametrize("why", ["too old", "erased", "no whole job", "another target"])
def test_files_that_a_killed_trainer_has_left_go(setting, why):
    job = left_by_a_killed_trainer(setting)
    forgotten = 2.0 * 3600.0 * setting.config.feedback.retain_hours
    if why == "too old":
        setting.now += forgotten
    elif why == "erased":
        setting.samples.erase("")
    elif why == "no whole job":
        (job / "job.json").unlink()
        setting.versions.pause(True)
    else:  # its folder is another one, and nobody comes back to this one
        setting.serve_target("another")
        setting.trainer().step()
        assert job.exists()
        setting.now += forgotten
    setting.trainer().step()
    assert tunings() == []
    assert not job.exists()


def test_a_round_whose_actor_dies_with_it_each_time_fails(setting, monkeypatch, caplog):
    monkeypatch.setattr(training, "MOST_STARTS", 2)
    for _ in range(2):
        left_by_a_killed_trainer(setting)
    setting.trainer().step()
    assert tunings() == []
    assert "tuning eagle3 has failed" in caplog.text
    assert setting.files_left() == ["lock"]


def test_a_round_ends_when_it_holds_an_answer_for_too_long(setting, caplog):
    """Requests run all the time, so that it cannot end by itself."""
    caplog.set_level("INFO")
    retained = 3600.0 * setting.config.feedback.retain_hours
    trainer = setting.begin()
    setting.busy = True
    trainer.hold()
    setting.now = 2.0 * retained
    trainer.step()
    assert len(tunings()) == 1
    setting.now += 1.0  # the oldest answer has the time 1
    trainer.step()
    assert tunings() == []
    assert setting.files_left() == ["lock"]
    assert "the round of eagle3 ends: one of its answers is 2 times as old" in caplog.text


def test_a_refused_round_is_remembered_also_if_the_store_is_away_at_its_end(setting, monkeypatch):
    job = left_by_a_killed_trainer(setting)
    (job / "verdict.json").write_text(Verdict(better=False, reason="worse").model_dump_json())
    trainer = setting.trainer()
    with monkeypatch.context() as patched:
        patched.setattr(setting.versions, "train", away)
        trainer.step()
    trainer.step()
    assert not list(setting.folder.glob("*/job"))
    assert setting.versions.in_force().training is None
    setting.trainer().step()
    assert tunings() == [], "it would be the same round"
    assert setting.versions.in_force().rounds["eagle3"].in_vain == 1
