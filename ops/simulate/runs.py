"""The runs behind `specadapt simulate`: policies, and services side by side, on all cores."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from ops.load.arrivals import Floats
from ops.simulate.outcomes import Outcomes
from ops.simulate.policies import Fleet, policy_of
from ops.simulate.service import Service, World

SERVICE_REPLICAS = 20
"""One router ranks all of its replicas for every prompt. Where there are more than so many, they
are simulated as services of their own side by side, each with its share of the requests, as one
would run them."""


@dataclass(frozen=True)
class Load:
    """When requests come [n], and of which prompts of the workload [n]."""

    arrivals: Floats
    prompts: NDArray[np.int64]


@dataclass(frozen=True)
class Job:
    """One policy's service: its replicas' methods, and the requests that it gets."""

    policy: str
    layout: tuple[tuple[str, ...], ...]
    load: Load
    seed: int


def jobs_of(policy: str, fleet: Fleet, methods: Sequence[str], load: Load, seed: int) -> list[Job]:
    """Of the services that these replicas are divided into, as evenly as can be; requests are drawn
    to them, so many to each as it has replicas."""
    layout = fleet.layout(methods, policy)
    services = -(-len(layout) // SERVICE_REPLICAS)
    # neighbours host different methods, so that services get equal parts of each
    parts = [tuple(part) for part in _blocks(layout, services)]
    sizes = np.asarray([len(part) for part in parts])
    drawn = np.random.default_rng((seed, 9)).choice(
        services, len(load.arrivals), p=sizes / sizes.sum()
    )
    return [
        Job(policy, part, Load(load.arrivals[drawn == i], load.prompts[drawn == i]), seed + i)
        for i, part in enumerate(parts)
        if (drawn == i).any()
    ]


def _blocks(layout: Sequence[tuple[str, ...]], count: int) -> Iterator[Sequence[tuple[str, ...]]]:
    ends = [round(len(layout) * i / count) for i in range(count + 1)]
    yield from (layout[a:b] for a, b in pairwise(ends))


def run(world: World, jobs: Sequence[Job], advance: Callable[[int], None]) -> dict[str, Outcomes]:
    """By policy what became of its requests; `advance` is told of so many done at a time."""
    done: dict[str, list[Outcomes]] = {}
    for job, outcomes in _outcomes(world, jobs):
        done.setdefault(job.policy, []).append(outcomes)
        advance(len(job.load.arrivals))
    order = dict.fromkeys(job.policy for job in jobs)
    return {policy: Outcomes.together(done[policy]) for policy in order}


def _outcomes(world: World, jobs: Sequence[Job]) -> Iterator[tuple[Job, Outcomes]]:
    cores = len(os.sched_getaffinity(0))
    if len(jobs) == 1 or cores == 1:
        yield from ((job, _run(world, job)) for job in jobs)
        return
    # A fresh process each: ONNX Runtime's threads do not survive a fork.
    with ProcessPoolExecutor(
        min(cores, len(jobs)), get_context("spawn"), _begin, (world,)
    ) as processes:
        for job, future in [(job, processes.submit(_run_here, job)) for job in jobs]:
            yield job, future.result()


def _run(world: World, job: Job) -> Outcomes:
    policy = policy_of(job.policy, world.table, world.router, job.seed)
    service = Service(world, job.layout, policy)
    return service.run(job.load.arrivals, job.load.prompts, job.seed)


_world: list[World] = []


def _begin(world: World) -> None:
    _world.append(world)


def _run_here(job: Job) -> Outcomes:
    return _run(_world[0], job)
