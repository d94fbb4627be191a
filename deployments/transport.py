"""How Ray Serve carries requests: over gRPC, and in one event loop of a process.

Ray's defaults carry every message of a stream as a task of an actor, through a second event loop in
the caller and a third one in the replica: it takes two to three times the processor time. Ray
documents these variables for throughput. Some of the names are private, so a test compares them
with the installed Ray.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

OVER_GRPC: Mapping[str, Any] = MappingProxyType({"_by_reference": False})
"""Options of a deployment's handle."""
WITHOUT_LOOP = MappingProxyType({"_run_router_in_separate_loop": True})
"""What a handle begins with in a thread without an event loop, whatever the environment says."""

_ONE_ROUTER = {"RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0"}
INGRESS = MappingProxyType({"RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0", **_ONE_ROUTER})
"""Environment of an ingress. What blocks its event loop also blocks Ray's health check."""
PROXY = MappingProxyType({"RAY_SERVE_PROXY_USE_GRPC": "1", **_ONE_ROUTER})
"""Environment of Ray Serve's HTTP proxies, which have that of their node."""
