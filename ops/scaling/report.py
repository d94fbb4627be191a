"""The tables of `bench scaling`."""

from collections.abc import Iterable
from typing import Any

from rich.console import Group

from ops.cli.output import table

COST = ("gpu_seconds", "mean_replicas", "most_replicas", "scaled_up", "scaled_down")


def tables_of(figures: dict[str, Any]) -> Iterable[Group | str]:
    """What people read: a line a policy, of what it costs and of what clients waited."""
    policies = figures["policies"].items()
    demand = figures["demand"]["mean_replicas"]
    yield table(
        f"Replayed on Ray Serve: {demand:.2f} replicas' worth of work on the mean",
        ["policy", "GPU seconds", "replicas, mean", "most", "scaled up", "down"],
        [[name, *(policy[key] for key in COST)] for name, policy in policies],
    )
    yield table(
        f"Seconds until the first token and the last one, of {figures['settings']['requests']} "
        "requests",
        ["policy", "first p50", "p95", "p99", "last p50", "p95", "p99", "good", "errors"],
        [[name, *_waited(policy)] for name, policy in policies],
    )


def _waited(policy: dict[str, Any]) -> list[Any]:
    times = [
        (policy[key] or {}).get(at)
        for key in ("ttft_s", "latency_s")
        for at in ("p50", "p95", "p99")
    ]
    return [*times, policy["good_share"], sum(policy["errors"].values())]
