"""A bundle, its samples and its versions for tests of rounds of training."""

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from deployments.head_training.samples import Samples
from deployments.head_training.trainer import HeadTrainer
from deployments.head_training.versions import VersionStore
from schemas import AppConfig, FeedbackConfig, MethodDeployment
from tests.training.counting import make_samples
from workers.bundle import load_bundle

PATIENCE_SECONDS = 300.0
"""A test that waits for longer fails. A wait without end would hold up all other tests."""


class Setting:
    """A bundle, its samples and its versions, and trainers of it."""

    def __init__(self, bundle: Path, folder: Path) -> None:
        feedback = FeedbackConfig(state_uri=str(folder / "state"))
        methods = (MethodDeployment(name="eagle3"),)
        self.config = AppConfig(bundle=bundle, methods=methods, feedback=feedback)
        self.folder = folder / "tuning"
        self.now = 1000.0
        self.busy = False
        self.serve_target("counting target")

    def serve_target(self, target: str) -> None:
        """Open the samples and versions as a process does that serves this target."""
        feedback = self.config.feedback
        self.samples = Samples(feedback, "counting", target, lambda: self.now)
        self.versions = VersionStore(feedback, "counting", target)

    def begin(self) -> HeadTrainer:
        """Begin a round with enough answers, and return its trainer."""
        self.samples.take(make_samples(240))
        trainer = self.trainer()
        trainer.step()
        return trainer

    def job(self) -> Path:
        """Return the folder of the one round."""
        (folder,) = self.folder.glob("*/job")
        return folder

    def files_left(self) -> list[str]:
        return [path.name for path in self.folder.glob("*/*")]

    def trainer(self) -> HeadTrainer:
        bundle = load_bundle(self.config.bundle)
        return HeadTrainer(
            self.config, bundle, self.samples, self.versions, lambda: self.busy, self.folder
        )


def tunings() -> list[psutil.Process]:
    """Return the tuning processes that this process has started and that live."""
    found = []
    for process in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # a zombie has no command line
            if "training.tuning_process" in process.cmdline():
                found.append(process)
    return found


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let no file grow larger than so many bytes, in processes too that start meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def wait(condition: Callable[[], bool], step: Callable[[], None] = lambda: None) -> None:
    """Repeat a step until a condition holds, which other processes bring about."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        step()
        time.sleep(0.05)
