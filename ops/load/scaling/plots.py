"""The plot of `bench scaling`: replicas and demand over time, and clients' waiting times."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ops.harness.plot_style import COLOURS, GREY, common_legend, figure

BLUE, ORANGE, RED = COLOURS[0], COLOURS[1], COLOURS[6]


def draw(figures: dict[str, Any], out: Path, stem: str) -> list[Path]:
    """A row a policy: the file written."""
    file, policies = out / f"{stem}-replicas.svg", figures["policies"]
    size = (9.0, 0.8 + 1.9 * len(policies))
    with figure(file, len(policies), 2, size=size, sharex=True, sharey="col") as axes:
        for (left, right), (name, policy) in zip(axes, policies.items(), strict=True):
            _replicas(left, figures["demand"], policy)
            _latency(right, policy)
            left.set_ylabel(name.replace("_", " "))
        axes[0][0].set_title("GPUs", fontsize=10)
        axes[0][1].set_title("seconds to the first token", fontsize=10)
        for panel in axes[-1]:
            panel.set_xlabel("seconds of the run")
        common_legend(axes[0][0], 3)
    return [file]


def _replicas(panel: Axes, demand: dict[str, Any], policy: dict[str, Any]) -> None:
    counts = policy["replicas"]
    at = [count["at"] for count in counts] + [policy["seconds"]]
    running = np.asarray([count["running"] for count in counts])
    held = running + [count["starting"] + count["stopping"] for count in counts]
    edges = np.arange(len(demand["replicas"]) + 1) * demand["bin_seconds"]
    panel.stairs(demand["replicas"], edges, fill=True, color=ORANGE, alpha=0.5, label="demand")
    panel.stairs(held, at, color=GREY, linewidth=1.0, label="starting or stopping too")
    panel.stairs(running, at, color=BLUE, linewidth=1.8, label="running replicas")
    panel.set_ylim(bottom=0.0)


def _latency(panel: Axes, policy: dict[str, Any]) -> None:
    answers = policy["timeline"]
    there = [(a["due"], a["ttft"]) for a in answers if a["ttft"] is not None]
    if there:
        panel.plot(*zip(*there, strict=True), ".", color=BLUE, markersize=3.5)
    for answer in answers:
        if answer["error"] is not None:
            panel.axvline(answer["due"], color=RED, linewidth=0.8, alpha=0.5)
    if policy["slo"]["ttft_s"] is not None:
        panel.axhline(policy["slo"]["ttft_s"], color=GREY, linewidth=1.0, linestyle="--")
    panel.set_ylim(bottom=0.0)
