"""What the processes of a running service hold, looked at again and again."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
import ray
from ray.serve.exceptions import RayServeException

from deployments.app import INGRESS
from ops.harness.own_service import CALL_SECONDS, OwnService
from ops.harness.processes import Process, processes

MB = 1e6


@dataclass(frozen=True)
class Held:
    """Resources of a process. memory_mb: private memory (USS). handles: open files."""

    memory_mb: float
    handles: int
    threads: int


@dataclass
class Sample:
    """A sample, `at` seconds into the run.

    tasks: asyncio tasks over a deployment's replicas; empty if a replica was away.
    """

    at: float
    held: dict[Process, Held] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)


async def watch(service: OwnService, every: float, samples: list[Sample]) -> None:
    """Add a sample at each interval until cancelled."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        samples.append(await asyncio.to_thread(sample, service, loop.time() - began))
        await asyncio.sleep(max(0.0, began + every * len(samples) - loop.time()))


def sample(service: OwnService, at: float) -> Sample:
    """What is held now; a process that has just gone is left out."""
    taken = Sample(at)
    for process in processes():
        with suppress(psutil.Error):
            taken.held[process] = _held(psutil.Process(process.pid))
    with suppress(RayServeException, ray.exceptions.RayError, TimeoutError):
        for name in _deployments(service):
            handle = service.handle(name)
            taken.tasks[name] = sum(handle.broadcast("tasks").results(timeout_s=CALL_SECONDS))
    return taken


def _held(process: psutil.Process) -> Held:
    with process.oneshot():
        memory = process.memory_full_info().uss / MB
        return Held(memory, process.num_fds(), process.num_threads())


def _deployments(service: OwnService) -> list[str]:
    config = service.config
    if config.layout == "shared":
        return [INGRESS, config.shared.name]
    return [INGRESS, *(method.name for method in config.methods)]
