"""Faults one after the other, each under load, with a quiet span before and after."""

import asyncio
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.harness.own_service import own_service
from ops.harness.prompts import Prompt
from ops.load.arrivals import Floats, poisson, trace
from ops.load.chaos.clients import Request, client, under_load
from ops.load.chaos.faults import FAULTS
from ops.load.chaos.figures import Run
from ops.load.chaos.site import Site
from schemas import AppConfig, MethodDeployment

METHODS = {"naive": 1, "ngram": 1, "eagle3": 2}
"""Replicas per method of the default service."""
INGRESSES = 2
SNAPSHOT_SECONDS = 5.0
RECOVERY_SECONDS = 240.0
START_SECONDS = 300.0
STREAM_SECONDS = 60.0
FLUSH_SECONDS = 60.0
LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class Load:
    """What clients ask, the same in every fault's run. arrivals [n]: seconds from its beginning;
    quiet: seconds before the fault, and after the service is whole again."""

    prompts: Sequence[Prompt]
    arrivals: Floats
    parameters: dict[str, Any]
    quiet: float


def served(bundle: Path) -> AppConfig:
    """Return the default service: for every part that is killed there is a second one."""
    methods = tuple(
        MethodDeployment(name=name, min_replicas=count, max_replicas=count)
        for name, count in METHODS.items()
    )
    return AppConfig.model_validate(
        {
            "bundle": bundle,
            "methods": methods,
            "http": {"ingress_replicas": INGRESSES},
            "feedback": {"snapshot_seconds": SNAPSHOT_SECONDS},
        }
    )


def arrivals_of(file: Path | None, rate: float, quiet: float, seed: int) -> Floats:
    """Seconds of all requests that a run may come to at `rate` a second. Raises InputError for a
    trace that has fewer."""
    count = math.ceil(rate * (2.0 * quiet + RECOVERY_SECONDS))
    unit = poisson(count, seed) if file is None else trace(file, count)
    return unit / rate


def run_faults(
    config: AppConfig, names: Sequence[str], load: Load, advance: Callable[[str], None]
) -> Iterator[Run]:
    """Run each fault on one service, or on a new one if the last did not recover.

    Calls `advance` with the name of the next fault.
    """
    remaining = list(names)
    while remaining:
        with own_service(config) as service:
            site = Site(service)
            asyncio.run(_until_whole(site, (), START_SECONDS))
            recovered: float | None = 0.0
            while remaining and recovered is not None:
                advance(remaining[0])
                run = asyncio.run(_run(site, remaining.pop(0), load))
                recovered = run.recovered
                yield run


async def _run(site: Site, name: str, load: Load) -> Run:
    loop, fault = asyncio.get_running_loop(), FAULTS[name]
    with ExitStack() as stack:
        async with (
            client(site.service.url) as server,
            under_load(server, load.prompts, load.arrivals, load.parameters) as requests,
        ):
            await asyncio.sleep(load.quiet)
            before = await asyncio.to_thread(site.stored)
            method = await _in_the_middle(requests)
            busiest = await asyncio.to_thread(site.busiest, method)
            injected = loop.time()
            happening = fault.happens(site, busiest)
            gone = await asyncio.to_thread(stack.enter_context, happening)
            if fault.lasts:
                await asyncio.sleep(fault.lasts)
                await asyncio.to_thread(stack.close)
            recovered = await _until_whole(site, gone, RECOVERY_SECONDS)
            await asyncio.sleep(load.quiet)
        await _until_learned(site)
        after = await asyncio.to_thread(site.stored)
    return Run(name, busiest.role, injected, recovered, requests, (before, after))


async def _in_the_middle(requests: Sequence[Request]) -> str:
    """Wait for an answer that has begun and not ended; return its method. Raises TimeoutError."""
    async with asyncio.timeout(STREAM_SECONDS):
        while True:
            for request in reversed(requests):
                if request.streaming and request.method is not None:
                    return request.method
            await asyncio.sleep(0.01)


async def _until_whole(site: Site, without: Collection[int], seconds: float) -> float | None:
    """Return the time at which the service is whole without these processes, or None."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while loop.time() < deadline:
        if await asyncio.to_thread(site.whole, without):
            return loop.time()
        await asyncio.sleep(LOOK_SECONDS)
    return None


async def _until_learned(site: Site) -> None:
    """Until an ingress has nothing left that is to be learned, or for so long."""
    deadline = asyncio.get_running_loop().time() + FLUSH_SECONDS
    quiet = 0
    while quiet < 5 and asyncio.get_running_loop().time() < deadline:
        waiting = await asyncio.to_thread(site.waiting)
        quiet = quiet + 1 if waiting == 0 else 0
        await asyncio.sleep(LOOK_SECONDS)
