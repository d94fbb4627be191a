"""Deployments that take faults and probes for experiments.

`deployments.app` loads this module only where `AppConfig.faults` is set. Nothing here has an HTTP
path: call the methods through a Ray Serve handle; `broadcast` reaches all replicas.
"""

import asyncio

from deployments.ingress import Ingress
from deployments.replica.method import MethodReplica
from schemas import AppConfig
from workers.faults import Faults


class FaultyReplica(MethodReplica):
    """A method's replica whose engine can be slowed down and broken."""

    def __init__(self, config: AppConfig, methods: tuple[str, ...]) -> None:
        super().__init__(config, methods)
        self._faults = Faults(self._engine)

    async def tasks(self) -> int:
        """Return the number of asyncio tasks in the replica's event loop."""
        return len(asyncio.all_tasks())

    async def set_extra_target_forwards(self, method: str, extra: int) -> None:
        """Slow a method down by so many more target forwards a step; 0 restores its speed."""
        self._faults.add_target_forwards(method, extra)

    async def set_replay_factor(
        self, method: str, factor: float, replica: str | None = None
    ) -> None:
        """Multiply every recorded second of a replayed method by `factor`. replica: if given, on
        that replica alone."""
        if replica in (None, self._replica):
            self._faults.scale_replay(method, factor)

    async def poison(self) -> None:
        """Make the target compute NaN from now on."""
        self._faults.poison()

    async def break_drafters(self, broken: bool) -> None:
        """Make every drafter fail, or work again."""
        self._faults.break_drafters(broken)


class FaultyIngress(Ingress):
    """An ingress that says how many asyncio tasks it has."""

    async def tasks(self) -> int:
        """Return the number of asyncio tasks in the ingress's event loop."""
        return len(asyncio.all_tasks())
