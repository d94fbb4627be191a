"""Exclusive CPU cores for a replica."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import ray

from deployments.head_training.tuning import MachineLock
from schemas import EngineConfig, MethodSpec


class CoresTakenError(ValueError):
    """Too few cores of this machine are free; the message names the fix."""


class PinnedCores:
    """Claim `count` cores and pin all threads of this process to them.

    A claim is the lock of a folder named after the core, so it ends with the process, however that
    ends. Threads that start later inherit the cores. Raises CoresTakenError.
    """

    def __init__(self, count: int, folder: Path | None = None) -> None:
        folder = folder or Path(tempfile.gettempdir()) / f"specadapt-cores-{os.getuid()}"
        usable = sorted(os.sched_getaffinity(0))
        self.locks: dict[int, MachineLock] = {}
        """By core."""
        for core in usable:
            lock = MachineLock(folder / str(core))
            if len(self.locks) < count and lock.taken():
                self.locks[core] = lock
        if len(self.locks) < count:
            raise CoresTakenError(
                f"engine.pin_cores: fewer than {count} of this machine's {len(usable)} cores are "
                "free: run fewer replicas on it, or leave pin_cores out"
            )
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), self.locks)


def pinned_cores(engine: EngineConfig, specs: Sequence[MethodSpec]) -> PinnedCores | None:
    """Return the replica's own cores, None if it has none or decodes elsewhere."""
    if not engine.pin_cores or engine.device == "cuda" or engine.openai or ray.get_gpu_ids():
        return None
    # vLLM's scheduler polls while its worker computes: on the same core it would take half of it.
    scheduler = any(spec.engine == "vllm" for spec in specs)
    return PinnedCores(engine.threads + scheduler)
