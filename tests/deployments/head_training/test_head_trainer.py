"""Tuning in rounds: when one begins, what interrupts it, and what becomes of its result."""

import subprocess
import sys

import psutil
import pytest
from stored_heads import head, origin
from tuning_setting import tunings, wait

from deployments.head_training.tuning import Tuning
from tests.training.counting import make_samples

STARTER = """
import sys, time
from pathlib import Path
from deployments.head_training.tuning import Tuning
tuning = Tuning(Path(sys.argv[1]))
tuning.start()
time.sleep(600)
"""


@pytest.mark.slow
def test_a_round_is_held_while_requests_run_and_survives_its_trainer(setting):
    first = setting.begin()
    (tuning,) = tunings()
    setting.busy = True
    first.hold()
    wait(lambda: tuning.status() == psutil.STATUS_STOPPED)
    setting.trainer().step()  # another trainer of the same heads waits
    assert tunings() == [tuning]
    setting.busy = False
    first.hold()
    wait(lambda: tuning.status() != psutil.STATUS_STOPPED)
    tuning.kill()
    wait(lambda: not tuning.is_running() or tuning.status() == psutil.STATUS_ZOMBIE)
    first.step()
    (again,) = tunings()
    assert again != tuning
    again.kill()
    again.wait()
    del first

    second = setting.trainer()
    second.step()
    wait(lambda: bool(setting.versions.all()), second.step)
    (version,) = setting.versions.all()
    assert version.verdict.better
    assert version.samples.answers == len([s for s in setting.samples.kept() if not s.held])
    heads = setting.versions.in_force()
    assert heads.number("eagle3") == 0
    assert heads.canaries["eagle3"].number == version.number
    second.step()
    assert tunings() == []
    assert setting.files_left() == ["lock"]


def test_a_tuning_dies_with_its_starter_even_if_it_is_stopped(setting):
    setting.begin()
    (tuning,) = tunings()
    tuning.kill()
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(setting.job())])
    wait(lambda: bool(psutil.Process(starter.pid).children()))
    (child,) = psutil.Process(starter.pid).children()
    wait(lambda: child.nice() == 19)
    child.suspend()
    starter.kill()
    starter.wait()
    # Where no process waits for orphans, it stays as a zombie.
    wait(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_tuning_whose_starter_died_at_once_ends_too(tmp_path):
    """The starter's number is another process's: the death signal was set too late."""
    command = [sys.executable, "-m", "training.tuning_process", str(tmp_path / "job"), "1"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert ended.stderr.strip() == "the process that started this one has ended"


def test_nothing_begins_before_it_may(setting, tmp_path, caplog):
    """What a round lacks is said once, when it is due."""
    trainer = setting.trainer()
    setting.samples.take(make_samples(20))
    trainer.step()
    assert "begins" not in caplog.text
    setting.samples.take(make_samples(80))
    for _ in range(2):
        trainer.step()
    assert caplog.text.count("no round of eagle3 begins: 80 answers are kept, of") == 1
    assert "raise feedback.sample_tokens" in caplog.text
    setting.samples.take(make_samples(240))
    setting.versions.pause(True)
    trainer.step()
    setting.versions.pause(False)
    version = setting.versions.add(head(tmp_path / "head"), origin())
    setting.versions.try_out(version.number, 0.1)
    trainer.step()
    assert tunings() == []


@pytest.mark.parametrize("held", [False, True])
def test_a_round_ends_when_one_of_its_answers_is_erased(setting, held):
    made = make_samples(240)
    owners = {False: "tenant learned", True: "tenant held"}
    setting.samples.take([s.model_copy(update={"owner": owners[s.held]}) for s in made])
    trainer = setting.trainer()
    trainer.step()
    assert len(tunings()) == 1
    setting.samples.erase(owners[held])
    for _ in range(2):
        trainer.step()
    assert tunings() == []
    assert setting.files_left() == ["lock"]


def test_a_later_round_still_knows_the_bundles_own_head(setting, tmp_path):
    setting.versions.promote(setting.versions.add(head(tmp_path / "head"), origin()).number)
    trainer = setting.begin()
    job = Tuning(setting.job()).job
    assert job.parent_number == 1
    assert job.own == (setting.config.bundle / "eagle3").resolve() != job.parent
    setting.versions.pause(True)
    trainer.step()
    assert tunings() == []


@pytest.mark.parametrize("decision", ["pause", "other parent", "delete the files"])
def test_a_running_round_ends_when_its_result_is_no_longer_wanted(setting, tmp_path, decision):
    trainer = setting.begin()
    assert len(tunings()) == 1
    job = setting.job()
    if decision == "pause":
        setting.versions.pause(True)
    elif decision == "other parent":
        setting.versions.promote(setting.versions.add(head(tmp_path / "head"), origin()).number)
    else:
        job.rename(tmp_path / "job")
    trainer.step()
    assert tunings() == []
    assert not job.exists()
    assert setting.versions.in_force().training is None
