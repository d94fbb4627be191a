"""A deployment that shows in Ray Serve's status whether the ingress took its `user_config`.

Serve has no other place for it: a `reconfigure` that raises ends its replica (Ray 2.60).
"""

import asyncio

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from deployments.configuration import ConfigError

NAME = "user-config"
ASKING_SECONDS = 2.0


class UserConfig:
    """Be unhealthy while the application's ingress refuses the last `user_config`."""

    def __init__(self, ingress: str) -> None:
        self._application = serve.get_replica_context().app_name
        self._ingress = serve.get_deployment_handle(ingress, self._application)
        self._started = False

    async def check_health(self) -> None:
        """Raise ConfigError with the ingress's reason; while the replica starts, wait instead."""
        if not self._started:
            await self._start()
        elif (reason := await self._refused()) is not None:
            raise ConfigError(f"user_config is refused: {reason}")

    async def _start(self) -> None:
        # A first replica starts whatever was refused: Serve would give the deployment up for good.
        # One that replaces a replica that told of a refusal would have Serve content again.
        deployments = serve.status().applications[self._application].deployments
        if deployments[NAME].status == "UNHEALTHY":
            while await self._refused() is not None:
                await asyncio.sleep(ASKING_SECONDS)
        self._started = True

    async def _refused(self) -> str | None:
        try:
            return await asyncio.wait_for(
                self._ingress.refused_settings.remote(), timeout=ASKING_SECONDS
            )
        except (TimeoutError, RayError, RayServeException):
            return None  # no ingress is there: others show that
