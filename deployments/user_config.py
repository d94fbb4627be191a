"""A deployment that follows changes of an application: it tells ingresses of changed `args`, shows
whether they took a `user_config`, and has replicas make room for their replacements.

Serve's status has no other place for what is refused: a `reconfigure` that raises ends its replica
(Ray 2.60). Changed `args` come as this deployment's own `user_config`, since a Serve configuration
may replace the ingress's.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from deployments.configuration import ConfigError
from deployments.making_room import Room

NAME = "user-config"
ASKING_SECONDS = 2.0


class UserConfig:
    """Be unhealthy while one of the application's ingresses refuses the last `user_config`."""

    def __init__(self, ingress: str) -> None:
        self._application = serve.get_replica_context().app_name
        self._ingress = serve.get_deployment_handle(ingress, self._application)
        self._started = False
        self._args: Mapping[str, Any] = {}
        self._room = Room()

    async def reconfigure(self, args: Mapping[str, Any]) -> None:
        """Take the application's `args`; ingresses are told with every check of the health."""
        self._args = args

    async def check_health(self) -> None:
        """Raise ConfigError with the ingress's reason; while the replica starts, wait instead."""
        if not self._started:
            await self._start()
            return
        await self._make_room()
        if (reason := await self._refused()) is not None:
            raise ConfigError(f"user_config is refused: {reason}")

    async def _start(self) -> None:
        # A first replica starts whatever was refused: Serve would give the deployment up for good.
        # One that replaces a replica that told of a refusal would have Serve content again.
        deployments = serve.status().applications[self._application].deployments
        if deployments[NAME].status == "UNHEALTHY":
            while await self._refused() is not None:
                await asyncio.sleep(ASKING_SECONDS)
        self._started = True

    async def _make_room(self) -> None:
        with suppress(TimeoutError, RayError, RayServeException):  # it is tried again
            status = await asyncio.to_thread(serve.status)
            name = self._room.wanted(status.applications[self._application].deployments)
            if name is not None:
                handle = serve.get_deployment_handle(name, self._application)
                await asyncio.wait_for(handle.make_room.remote(self._args), ASKING_SECONDS)

    async def _refused(self) -> str | None:
        try:
            told = self._ingress.broadcast("follow", self._args)
            answers = await told.results_async(timeout_s=ASKING_SECONDS, return_exceptions=True)
        except (TimeoutError, RayError, RayServeException):
            return None  # an ingress is not there: others show that
        return next((said for said in answers if isinstance(said, str)), None)
