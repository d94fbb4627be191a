"""The actor of an application that keeps samples of its answers."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from deployments.actors import DRAFTERS, end_when_idle, named_actor
from deployments.drafters.samples import Samples, SampleStats
from deployments.logs import log_with_serve
from schemas import AppConfig, Sample
from workers.bundle import load_bundle


class Drafters:
    """Keep samples of answers for the training of drafters."""

    def __init__(self, config: AppConfig) -> None:
        self._samples = Samples(config.feedback, load_bundle(config.bundle).name)
        self._called = time.monotonic()

    async def take(self, batch: Sequence[Sample]) -> None:
        """Add samples. An ingress calls with none too, since the actor ends when nobody calls."""
        self._called = time.monotonic()
        await asyncio.to_thread(self._samples.take, batch)

    async def stats(self) -> SampleStats:
        """Return how many samples are kept."""
        return await asyncio.to_thread(self._samples.stats)

    def idle_seconds(self) -> float:
        """Return the seconds since an ingress last called."""
        return time.monotonic() - self._called


class DraftersActor(Drafters):
    """Run `Drafters` inside Ray."""

    def __init__(self, config: AppConfig) -> None:
        log_with_serve()
        super().__init__(config)
        end_when_idle(self.idle_seconds)


def drafters_actor(application: str, config: AppConfig) -> Any:
    """Return the handle of an application's drafters' actor; create it if it does not exist."""
    return named_actor(DraftersActor, DRAFTERS, application, config, config)
