"""An open-loop client: each request is sent when it is due, whatever became of the others."""

import httpx

from workers.http_clients import async_client

PATIENCE_SECONDS = 600.0


def client(url: str, key: str = "") -> httpx.AsyncClient:
    """Return a client without a bound on its connections: a bound would be a queue of its own."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return async_client(url, timeout=PATIENCE_SECONDS, limits=limits, headers=headers)
