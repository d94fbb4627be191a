"""Exclusive CPU cores for a replica."""

import fcntl
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import ray

from schemas import EngineConfig, MethodSpec


class CoresTakenError(ValueError):
    """Too few cores of this machine are free; the message names the fix."""


class PinnedCores:
    """Claim `count` cores and pin all threads of this process to them.

    A claim is a lock on a file named after the core, so it ends with the process, however that
    ends. Threads that start later inherit the cores. Raises CoresTakenError.
    """

    def __init__(self, count: int, folder: Path | None = None) -> None:
        self._locks: dict[int, IO[str]] = {}
        folder = folder or Path(tempfile.gettempdir()) / f"specadapt-cores-{os.getuid()}"
        folder.mkdir(exist_ok=True)
        usable = sorted(os.sched_getaffinity(0))
        for core in usable:
            if len(self._locks) < count and (lock := _locked(folder / f"{core}.lock")):
                self._locks[core] = lock
        if len(self._locks) < count:
            self.release()
            raise CoresTakenError(
                f"engine.pin_cores: fewer than {count} of this machine's {len(usable)} cores are "
                "free: run fewer replicas on it, or leave pin_cores out"
            )
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), self._locks)

    @property
    def cores(self) -> list[int]:
        return sorted(self._locks)

    def release(self) -> None:
        """Let others claim the cores; the threads stay where they are."""
        for lock in self._locks.values():
            lock.close()
        self._locks = {}


def pinned_cores(engine: EngineConfig, specs: Sequence[MethodSpec]) -> PinnedCores | None:
    """Return the replica's own cores, None if it has none or decodes elsewhere."""
    if not engine.pin_cores or engine.device == "cuda" or engine.openai or ray.get_gpu_ids():
        return None
    # vLLM's scheduler polls while its worker computes: on the same core it would take half of it.
    scheduler = any(spec.engine == "vllm" for spec in specs)
    return PinnedCores(engine.threads + scheduler)


def _locked(file: Path) -> IO[str] | None:
    """Return the file with an exclusive lock; None if another process has it."""
    opened = file.open("w")
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        opened.close()
        return None
    return opened
