"""How Ray Serve carries requests: over gRPC without proxies, and in one event loop of a process.

Ray's defaults carry every message of a stream as a task of an actor, through a second event loop in
the caller and a third one in the replica: it takes two to three times the processor time. Ray
documents these variables for throughput. Some of the names are private, so a test compares them
with the installed Ray.
"""

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

OVER_GRPC: Mapping[str, Any] = MappingProxyType({"_by_reference": False})
"""Options of a deployment's handle."""

NO_GRPC_PROXY = "no_grpc_proxy"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
EVERY_ADDRESS = ("0.0.0.0/0", "::/0")

_ONE_ROUTER = {"RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0"}
INGRESS = MappingProxyType(
    {
        "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
        "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "1000",
        **_ONE_ROUTER,
    }
)
"""Environment of an ingress. What blocks its event loop also blocks Ray's health check. Ray exports
metrics every few seconds, and would collect them ten times a second for each of its parts."""
PROXY = MappingProxyType({"RAY_SERVE_PROXY_USE_GRPC": "1", **_ONE_ROUTER})
"""Environment of Ray Serve's HTTP proxies, which have that of their node."""


def bypass_proxies() -> None:
    """Have this process, and those that it starts, use no proxy for IP addresses and localhost.

    Nodes address each other by IP. gRPC's own variable replaces `no_proxy`, so it repeats it.
    """
    kept = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if kept != "*":  # which means every server, but not in a list
        os.environ["no_proxy"] = _with(kept, LOOPBACK)
    grpc = os.environ.get(NO_GRPC_PROXY) or kept
    os.environ[NO_GRPC_PROXY] = _with(grpc, (*LOOPBACK, *EVERY_ADDRESS))


def _with(kept: str, more: Sequence[str]) -> str:
    known = [name.strip() for name in kept.split(",") if name.strip()]
    return ",".join(dict.fromkeys((*known, *more)))
