"""The tables of `bench scaling`."""

from collections.abc import Iterable
from typing import Any

from rich.console import Group

from ops.harness.output import table

COST = ("gpu_seconds", "mean_replicas", "most_replicas", "scaled_up", "scaled_down")
WAITED = {"first token": "ttft_s", "last token": "latency_s"}


def tables_of(figures: dict[str, Any]) -> Iterable[Group | str]:
    """What people read: what each policy costs, and what clients waited."""
    policies, demand = figures["policies"], figures["demand"]["mean_replicas"]
    yield table(
        f"Replayed on Ray Serve: {figures['settings']['requests']} requests, {demand:.2f} "
        "replicas' worth of work on the mean",
        ["policy", "GPU seconds", "replicas", "most", "up", "down", "good", "errors"],
        [[name, *_counted(policy)] for name, policy in policies.items()],
    )
    yield table(
        "Seconds from when a request was due",
        ["policy", "until", "mean", "p50", "p95", "p99"],
        [
            [name, until, *((policy[key] or {}).get(at) for at in ("mean", "p50", "p95", "p99"))]
            for name, policy in policies.items()
            for until, key in WAITED.items()
        ],
    )


def _counted(policy: dict[str, Any]) -> list[Any]:
    return [*(policy[key] for key in COST), policy["good_share"], sum(policy["errors"].values())]
