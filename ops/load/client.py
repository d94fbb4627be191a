"""An open-loop client: each request is sent when it is due, whatever became of the others."""

import asyncio

import httpx

from workers.http_clients import async_client

PATIENCE_SECONDS = 600.0
QUIET_SECONDS = 60.0


def client(url: str, key: str = "") -> httpx.AsyncClient:
    """Return a client without a bound on its connections: a bound would be a queue of its own."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return async_client(url, timeout=PATIENCE_SECONDS, limits=limits, headers=headers)


async def until_quiet(service: httpx.AsyncClient, replicas: int) -> None:
    """Wait until `replicas` replicas have reported that they are idle. Raises TimeoutError."""
    async with asyncio.timeout(QUIET_SECONDS):
        known: dict[str, float] | None = None
        while True:
            loads = (await service.get("/v1/routing")).json()["loads"]
            times = {load["replica"]: load["time"] for load in loads}
            known = times if known is None else known
            news = [load for load in loads if load["time"] > known.get(load["replica"], 0.0)]
            idle = [load for load in news if load["running"] + load["waiting"] == 0]
            if len(idle) >= replicas:
                return
            await asyncio.sleep(0.25)
