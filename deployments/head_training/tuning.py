"""One tuning of a head: its files on this machine, and the process that works on it."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Self

from schemas import Sample, TuningJob, Verdict

JOB = "job.json"
_LOG, _STARTS = "log.txt", "starts"
_PROCESS = sys.executable, "-m", "training.tuning_process"
_ENVIRONMENT = {
    # One core, since a request that comes shares the cores until the process is held.
    "OMP_NUM_THREADS": "1",
    # Waiting threads sleep, since engines compute on the same cores.
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
}


class MachineLock:
    """A folder's lock, which one process of this machine at a time holds until it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None

    def taken(self) -> bool:
        """Return whether this process holds the lock, which it takes if it is free."""
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (self._folder / "lock").open("wb")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                return False
            self._file = lock
        return True


class TuningError(RuntimeError):
    """A job's process has ended without a verdict."""


class Tuning:
    """A job whose files are in its folder. Only one object may work on a folder at a time.

    Checkpoints outlive the process: another object for the same folder continues from them.
    samples, held: what the job learns from, and what the candidate is judged on.
    """

    def __init__(self, folder: Path) -> None:
        """Open a prepared folder. Raises OSError or ValueError if it holds no job."""
        self.job = TuningJob.model_validate_json((folder / JOB).read_text(encoding="utf-8"))
        self.samples, self.held = _read(self.job.samples), _read(self.job.held)
        self._process: subprocess.Popen[bytes] | None = None
        self._held = False

    @classmethod
    def left(cls, folder: Path) -> Self | None:
        """Open what a killed process has left in a folder; remove it if it is no whole job."""
        try:
            return cls(folder)
        except (OSError, ValueError):
            shutil.rmtree(folder, ignore_errors=True)
            return None

    @classmethod
    def prepare(cls, job: TuningJob, samples: Sequence[Sample], held: Sequence[Sample]) -> Self:
        """Write a job's files in place of an earlier job's. Only this user can read them.

        The parent is copied: it may leave the cache of a remote store while the job runs. Raises
        OSError, and leaves no files, if the disk is full for example.
        """
        shutil.rmtree(job.folder, ignore_errors=True)
        try:
            job.folder.mkdir(parents=True, mode=0o700)
            if job.parent is not None:
                parent = shutil.copytree(job.parent, job.folder / "parent")
                job = job.model_copy(update={"parent": parent})
            for file, chosen in ((job.samples, samples), (job.held, held)):
                lines = (each.model_dump_json() + "\n" for each in chosen)
                file.write_text("".join(lines), encoding="utf-8")
            # Last and at once: what is not complete is not a job.
            unfinished = job.folder / "job.new"
            unfinished.write_text(job.model_dump_json(), encoding="utf-8")
            unfinished.replace(job.folder / JOB)
            return cls(job.folder)
        except OSError:
            shutil.rmtree(job.folder, ignore_errors=True)
            raise

    def start(self) -> None:
        """Start the process from the job's beginning or its last checkpoint.

        The process is killed when the thread that called this ends.
        """
        # Before the process is there: it may use up the memory of the machine, and `hold` may be
        # called in another thread.
        with (self.job.folder / _STARTS).open("ab") as starts:
            starts.write(b".")
        self._held = False
        with (self.job.folder / _LOG).open("ab") as log:
            self._process = subprocess.Popen(
                [*_PROCESS, str(self.job.folder / JOB), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | _ENVIRONMENT,
            )

    @property
    def starts(self) -> int:
        """Return how often the job's process was started, also by other objects."""
        file = self.job.folder / _STARTS
        return file.stat().st_size if file.exists() else 0

    @property
    def running(self) -> bool:
        """Return whether the process works or is held."""
        return self._process is not None and self._process.poll() is None

    @property
    def interrupted(self) -> bool:
        """Return whether the job is to be started: it never was, or a signal ended it."""
        ended = self._process.poll() if self._process is not None else -1
        return ended is not None and ended < 0 and not self.job.verdict.exists()

    def hold(self, wanted: bool) -> None:
        """Stop the process while `wanted`, and let it continue otherwise."""
        if self._process is not None and wanted != self._held:
            self._process.send_signal(signal.SIGSTOP if wanted else signal.SIGCONT)
            self._held = wanted

    def verdict(self) -> Verdict:
        """Return the verdict of the ended process. Raises TuningError if there is none."""
        if not self.job.verdict.is_file():
            file = self.job.folder / _LOG
            log = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
            raise TuningError((log.strip() or "no output").rpartition("\n")[2])
        return Verdict.model_validate_json(self.job.verdict.read_text(encoding="utf-8"))

    def remove(self) -> None:
        """End the process and delete all files of the job."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self.job.folder.is_dir():
            shutil.rmtree(self.job.folder)


def remove_forgotten(own: Path, unwanted: Callable[[Sequence[Sample]], object]) -> None:
    """Remove jobs of other services if `unwanted` says so of their samples.

    Their folders are next to `own`. A running service holds the lock of its folder, so its job
    stays.
    """
    for place in own.parent.glob("*"):
        lock = MachineLock(place)
        if place != own and (place / "job").is_dir() and lock.taken():
            left = Tuning.left(place / "job")
            if left is not None and unwanted([*left.samples, *left.held]):
                left.remove()


def _read(file: Path) -> list[Sample]:
    return [Sample.model_validate_json(line) for line in file.read_bytes().splitlines()]
