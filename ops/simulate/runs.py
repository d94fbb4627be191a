"""The runs behind `specadapt simulate`: policies, and services side by side, on all cores."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ops.load.arrivals import Floats
from ops.simulate.fleet import Methods
from ops.simulate.outcomes import Outcomes
from ops.simulate.policies import Fleet, policy_of
from ops.simulate.service import Service
from ops.simulate.world import World
from schemas import MethodDeployment

Task = TypeVar("Task")
Result = TypeVar("Result")

SERVICE_REPLICAS = 20
"""Largest number of replicas behind one router, which ranks all of them for every prompt. A larger
fleet is simulated as several services, each with its share of the requests. Replicas that scale are
one service."""


@dataclass(frozen=True)
class Load:
    """The arrival times [n] of requests, and their prompts' numbers [n] in the workload."""

    arrivals: Floats
    prompts: NDArray[np.int64]

    def only(self, kept: NDArray[np.bool_]) -> "Load":
        """The part of it that is `kept` [n]."""
        return Load(self.arrivals[kept], self.prompts[kept])


@dataclass(frozen=True)
class Job:
    """One policy's service: its replicas' methods, and the requests that it gets."""

    policy: str
    layout: tuple[Methods, ...]
    scales: dict[Methods, MethodDeployment]
    load: Load
    seed: int


def jobs_of(policy: str, fleet: Fleet, methods: Sequence[str], load: Load, seed: int) -> list[Job]:
    """Split a fleet and its load into services of about equal size.

    Requests are drawn to services in proportion to their replicas.
    """
    layout = fleet.layout(methods, policy)
    scales = fleet.scales(methods, policy)
    services = 1 if scales else -(-len(layout) // SERVICE_REPLICAS)
    # neighbours host different methods, so that services get equal parts of each
    parts = [tuple(part) for part in _blocks(layout, services)]
    sizes = np.asarray([len(part) for part in parts])
    drawn = np.random.default_rng((seed, 9)).choice(
        services, len(load.arrivals), p=sizes / sizes.sum()
    )
    return [
        Job(policy, part, scales, load.only(drawn == i), seed + i)
        for i, part in enumerate(parts)
        if (drawn == i).any()
    ]


def _blocks(layout: Sequence[tuple[str, ...]], count: int) -> Iterator[Sequence[tuple[str, ...]]]:
    ends = [round(len(layout) * i / count) for i in range(count + 1)]
    yield from (layout[a:b] for a, b in pairwise(ends))


def run(world: World, jobs: Sequence[Job], advance: Callable[[int], None]) -> dict[str, Outcomes]:
    """Run jobs and return the outcomes by policy; call `advance` with the requests done."""
    done: dict[str, list[Outcomes]] = {}
    for job, outcomes in zip(jobs, on_all_cores(world, outcomes_of, jobs), strict=True):
        done.setdefault(job.policy, []).append(outcomes)
        advance(len(job.load.arrivals))
    order = dict.fromkeys(job.policy for job in jobs)
    return {policy: Outcomes.together(done[policy]) for policy in order}


def outcomes_of(world: World, job: Job) -> Outcomes:
    """Simulate a job and return its requests' outcomes."""
    policy = policy_of(job.policy, world.table, world.router, job.seed)
    service = Service(world, job.layout, policy, job.scales)
    return service.run(job.load.arrivals, job.load.prompts, job.seed)


def on_all_cores(
    world: World, work: Callable[[World, Task], Result], tasks: Sequence[Task]
) -> Iterator[Result]:
    """Apply a module-level function to each task in processes; return the results in order."""
    cores = len(os.sched_getaffinity(0))
    if len(tasks) == 1 or cores == 1:
        yield from (work(world, task) for task in tasks)
        return
    # A fresh process each: ONNX Runtime's threads do not survive a fork.
    with ProcessPoolExecutor(
        min(cores, len(tasks)), get_context("spawn"), _begin, (world,)
    ) as processes:
        for future in [processes.submit(_here, work, task) for task in tasks]:
            yield future.result()


_world: list[World] = []


def _begin(world: World) -> None:
    _world.append(world)


def _here(work: Callable[[World, Task], Result], task: Task) -> Result:
    return work(_world[0], task)
