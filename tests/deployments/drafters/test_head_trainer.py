"""Tuning in rounds: when one begins, what interrupts it, and what becomes of its result."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from sampled import sample
from stored_heads import head, origin

from deployments.drafters import rounds
from deployments.drafters import trainer as training
from deployments.drafters.rounds import are_enough, held_samples, round_samples
from deployments.drafters.samples import Samples
from deployments.drafters.trainer import HeadTrainer
from deployments.drafters.tuning import Tuning
from deployments.drafters.versions import VersionStore
from schemas import AppConfig, FeedbackConfig, HeadsInForce, MethodDeployment, Sample
from tests.training.counting import make_samples
from workers.bundle import load_bundle

LEARNED = "1" * 64
"""A conversation that is not held."""
STARTER = """
import sys, time
from pathlib import Path
from deployments.drafters.tuning import Tuning
tuning = Tuning(Path(sys.argv[1]))
tuning.start()
time.sleep(600)
"""


class Setting:
    """A bundle, its samples and its versions, and trainers of it."""

    def __init__(self, bundle: Path, folder: Path) -> None:
        feedback = FeedbackConfig(state_uri=str(folder / "state"))
        methods = (MethodDeployment(name="eagle3"),)
        self.config = AppConfig(bundle=bundle, methods=methods, feedback=feedback)
        self.folder = folder / "tuning"
        self.now = 1000.0
        self.samples = Samples(feedback, "counting", lambda: self.now)
        self.versions = VersionStore(feedback, "counting")
        self.busy = False

    def trainer(self) -> HeadTrainer:
        bundle = load_bundle(self.config.bundle)
        return HeadTrainer(
            self.config, bundle, self.samples, self.versions, lambda: self.busy, self.folder
        )


@pytest.fixture
def setting(counting_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    monkeypatch.setattr(training, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(rounds, "ROUND_TOKENS", 1000)
    monkeypatch.setattr(training, "PASSES", 15)
    return Setting(counting_bundle, tmp_path)


def test_a_round_is_held_while_requests_run_and_survives_its_trainer(setting: Setting) -> None:
    setting.samples.take(make_samples(240))
    first = setting.trainer()
    first.step()
    (tuning,) = _tunings()
    setting.busy = True
    first.hold()
    _wait(lambda: tuning.status() == psutil.STATUS_STOPPED)
    setting.trainer().step()  # another trainer of the same heads waits
    assert _tunings() == [tuning]
    setting.busy = False
    first.hold()
    _wait(lambda: tuning.status() != psutil.STATUS_STOPPED)
    tuning.kill()
    _wait(lambda: not tuning.is_running() or tuning.status() == psutil.STATUS_ZOMBIE)
    first.step()
    (again,) = _tunings()
    assert again != tuning
    again.kill()
    again.wait()
    del first

    second = setting.trainer()
    second.step()
    while not setting.versions.all():
        second.step()
        time.sleep(0.1)
    (version,) = setting.versions.all()
    assert version.verdict.better
    assert version.samples.answers == len([s for s in setting.samples.kept() if not s.held])
    heads = setting.versions.in_force()
    assert heads.number("eagle3") == 0
    assert heads.canaries["eagle3"].number == version.number
    second.step()
    assert _tunings() == []
    assert [path.name for path in setting.folder.glob("*/*")] == ["lock"]


def test_a_store_that_hangs_does_not_keep_a_round_running(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting.samples.take(make_samples(240))
    asked, answers = threading.Event(), threading.Event()
    in_force = setting.versions.in_force

    def hanging() -> HeadsInForce:
        asked.set()
        answers.wait()
        return in_force()

    trainer = setting.trainer()
    trainer.step()
    (tuning,) = _tunings()
    monkeypatch.setattr(setting.versions, "in_force", hanging)
    setting.busy = True
    waiting = threading.Thread(target=trainer.step)
    waiting.start()
    asked.wait()
    trainer.hold()
    _wait(lambda: tuning.status() == psutil.STATUS_STOPPED)
    answers.set()
    waiting.join()
    tuning.kill()


def test_a_tuning_dies_with_its_starter_even_if_it_is_stopped(setting: Setting) -> None:
    setting.samples.take(make_samples(240))
    trainer = setting.trainer()
    trainer.step()
    (tuning,) = _tunings()
    tuning.kill()
    (job,) = setting.folder.glob("*/job")
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(job)])
    _wait(lambda: bool(psutil.Process(starter.pid).children()))
    (child,) = psutil.Process(starter.pid).children()
    _wait(lambda: child.nice() == 19)
    child.suspend()
    starter.kill()
    starter.wait()
    # Where no process waits for orphans, it stays as a zombie.
    _wait(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_nothing_begins_without_news_or_while_paused_or_before_a_canary_is_judged(
    setting: Setting, tmp_path: Path
) -> None:
    trainer = setting.trainer()
    setting.samples.take(make_samples(40))
    trainer.step()
    assert _tunings() == []  # too few held conversations
    assert not setting.folder.exists()
    setting.samples.take(make_samples(240))
    setting.versions.pause(True)
    trainer.step()
    assert _tunings() == []
    setting.versions.pause(False)
    version = setting.versions.add(head(tmp_path / "head"), origin())
    setting.versions.try_out(version.number, 0.1)
    trainer.step()
    assert _tunings() == []
    setting.versions.roll_back("eagle3")


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
    while "tuning eagle3 has failed" not in caplog.text:
        trainer.step()
        time.sleep(0.05)
    trainer.step()
    assert "no config.json in" in caplog.text
    assert _tunings() == []


@pytest.mark.parametrize("held", [False, True])
def test_a_round_ends_when_one_of_its_answers_is_erased(setting: Setting, held: bool) -> None:
    made = make_samples(240)
    owners = {False: "tenant learned", True: "tenant held"}
    setting.samples.take([s.model_copy(update={"owner": owners[s.held]}) for s in made])
    trainer = setting.trainer()
    trainer.step()
    assert len(_tunings()) == 1
    setting.samples.erase(owners[held])
    for _ in range(2):
        trainer.step()
    assert _tunings() == []
    assert [path.name for path in setting.folder.glob("*/*")] == ["lock"]


@pytest.mark.parametrize("decision", ["pause", "other parent", "delete the files"])
def test_a_running_round_ends_when_its_result_is_no_longer_wanted(
    setting: Setting, tmp_path: Path, decision: str
) -> None:
    setting.samples.take(make_samples(240))
    trainer = setting.trainer()
    trainer.step()
    assert len(_tunings()) == 1
    (job,) = setting.folder.glob("*/job")
    if decision == "pause":
        setting.versions.pause(True)
    elif decision == "other parent":
        setting.versions.promote(setting.versions.add(head(tmp_path / "head"), origin()).number)
    else:
        job.rename(tmp_path / "job")
    trainer.step()
    assert _tunings() == []
    assert not job.exists()
    assert setting.versions.in_force().training is None


def test_files_that_a_killed_trainer_has_left_go_with_their_samples(setting: Setting) -> None:
    setting.samples.take(make_samples(240))
    first = setting.trainer()
    first.step()
    (tuning,) = _tunings()
    tuning.kill()
    tuning.wait()
    (job,) = setting.folder.glob("*/job")
    assert Tuning(job).job.parent == job.resolve() / "parent"
    del first

    setting.now += 3600.0 * setting.config.feedback.retain_hours
    second = setting.trainer()
    second.step()
    assert _tunings() == []
    assert not job.exists()
    job.mkdir()
    (job / "samples.jsonl").touch()
    second.step()
    assert not job.exists(), "what is no whole job is removed"


def test_a_flood_of_one_kind_does_not_judge_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MOST_HELD", 6)
    flood = [sample(f"flood {i}", conversation="0" * 64, time=100.0 + i) for i in range(20)]
    other = [sample(f"other {i}", conversation="0" * 64, cluster=1, time=i) for i in range(2)]
    assert all(each.held for each in flood)
    judging = held_samples([*flood, *other])
    assert [each.time for each in judging] == [0.0, 1.0, 116.0, 117.0, 118.0, 119.0]


def test_a_round_mixes_older_samples_with_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MOST_TOKENS", 60)
    kept = [sample(str(i), conversation=LEARNED, time=float(i)) for i in range(20)]

    def times(samples: list[Sample]) -> list[float]:
        return sorted(each.time for each in samples)

    assert times(round_samples(kept, 0.0)) == [0.0, *range(15, 20)]
    chosen = times(round_samples(kept, 9.0))
    assert [time for time in chosen if time > 9] == [17, 18, 19]
    assert len(chosen) == 6
    alone = times(round_samples(kept, 18.0))
    assert alone[-1] == 19
    assert len(alone) == 6


def test_rounds_in_vain_wait_for_more_samples_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "ROUND_TOKENS", 10)
    kept = [sample(str(i), conversation=LEARNED, time=float(i)) for i in range(100)]
    assert are_enough(kept, 97.0, 0)
    assert not are_enough(kept, 98.0, 0)
    assert are_enough(kept, 91.0, 2)
    assert not are_enough(kept, 92.0, 2)
    assert are_enough(kept, 49.0, 60), "never more than half of what is kept"
    assert not are_enough(kept, 50.0, 60)


def _tunings() -> list[psutil.Process]:
    """Return the tuning processes that this process has started and that live."""
    found = []
    for process in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # a zombie has no command line
            if "training.heads.tuning_process" in process.cmdline():
                found.append(process)
    return found


def _wait(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.05)
