"""The run behind `bench soak`."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ops.harness.own_service import OwnService
from ops.harness.prompts import Prompt
from ops.load.arrivals import Floats
from ops.load.client import client, until_quiet
from ops.load.soak.clients import drive
from ops.load.soak.samples import Sample, sample, watch
from workers.http_clients import async_client

STEADY_SECONDS = 5.0
"""Idle seconds before the idle state is sampled."""


@dataclass
class Run:
    """What a soak gave. idle: before the load and after it."""

    outcomes: Counter[str]
    idle: tuple[Sample, Sample]
    samples: list[Sample] = field(default_factory=list)


async def run_soak(
    service: OwnService,
    prompts: Sequence[Prompt],
    arrivals: Floats,
    parameters: dict[str, Any],
    every: float,
) -> Run:
    """Load until the last arrival [n] has been answered, with a sample each `every` seconds."""
    samples: list[Sample] = []
    before = await _idle(service)
    watching = asyncio.create_task(watch(service, every, samples))
    try:
        # closed before the last look: connections that are kept open are files of the proxy's
        async with client(service.url) as server:
            outcomes = await drive(server, prompts, arrivals, parameters)
    finally:
        watching.cancel()
    return Run(outcomes, (before, await _idle(service)), samples)


async def _idle(service: OwnService) -> Sample:
    async with async_client(service.url) as server:
        await until_quiet(server, service.replicas)
    await asyncio.sleep(STEADY_SECONDS)
    return await asyncio.to_thread(sample, service, 0.0)
