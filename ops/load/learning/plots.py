"""`bench learning`'s figures as plots: latency, methods and drift over time."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from ops.harness.plot_style import GREY, colour_of, figure, legend

WINDOW = 31
"""Pairs per median of a curve."""


def draw(figures: dict[str, Any], out: Path, stem: str) -> list[Path]:
    """A plot per scenario: the files written."""
    return [
        _scenario(scenario, out / f"{stem}-{name.replace('_', '-')}.svg")
        for name, scenario in figures["scenarios"].items()
    ]


def _scenario(scenario: dict[str, Any], file: Path) -> Path:
    drifts = [look for look in scenario["table"] if look["drift"] is not None]
    panels = 3 if "new" in scenario else 2
    with figure(file, panels, size=(9.0, 2.6 * panels), sharex=True) as axes:
        column = axes[:, 0]
        _latencies(column[0], scenario)
        _methods(column[1], scenario)
        if panels == 3:
            _drift(column[2], drifts)
        for panel in column:
            _phases(panel, scenario, named=panel is column[0])
        column[-1].set_xlabel("seconds")
    return file


def _latencies(panel: Axes, scenario: dict[str, Any]) -> None:
    pairs = scenario["pairs"]
    colours = colour_of(["routed", "static table"])
    for name, key in {"routed": "routed_s", "static table": "static_s"}.items():
        known = [(pair["at"], pair[key]) for pair in pairs if pair[key] is not None]
        at, seconds = np.asarray(known, dtype=float).T
        panel.plot(at, seconds, ".", color=colours[name], markersize=3, alpha=0.5)
        smooth, middle = _median(at, seconds)
        panel.plot(smooth, middle, color=colours[name], label=name, linewidth=2)
    panel.set_ylim(bottom=0.0)
    lost = [pair["at"] for pair in pairs if pair["static_s"] is None]
    if lost:
        panel.plot(
            lost,
            [0.04] * len(lost),
            "x",
            color=colours["static table"],
            label="static table: no answer",
            transform=panel.get_xaxis_transform(),
        )
    panel.set_ylabel("latency (s)")
    legend(panel, 3)


def _methods(panel: Axes, scenario: dict[str, Any]) -> None:
    pairs = [pair for pair in scenario["pairs"] if pair["routed_method"] is not None]
    names = sorted({pair["routed_method"] for pair in pairs})
    at = np.asarray([pair["at"] for pair in pairs])
    edges = np.linspace(0.0, at[-1], min(40, max(2, len(pairs) // 10)))
    bins = np.clip(np.digitize(at, edges) - 1, 0, len(edges) - 2)
    counts = np.zeros((len(names), len(edges) - 1))
    for pair, slot in zip(pairs, bins, strict=True):
        counts[names.index(pair["routed_method"]), slot] += 1
    shares = counts / np.maximum(1.0, counts.sum(axis=0))
    colours = colour_of(names)
    panel.stackplot(
        (edges[:-1] + edges[1:]) / 2,
        shares,
        labels=names,
        colors=[colours[name] for name in names],
        alpha=0.75,
    )
    panel.set_ylim(0.0, 1.0)
    panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.set_ylabel("routed to")
    legend(panel, 6)


def _drift(panel: Axes, drifts: list[dict[str, Any]]) -> None:
    at = [look["at"] for look in drifts]
    colours = colour_of(["drift", "alarm"])
    panel.plot(at, [look["drift"] for look in drifts], color=colours["drift"], label="drift")
    alarms = [(look["at"], look["alarm_above"]) for look in drifts if look["alarm_above"]]
    if alarms:
        panel.plot(
            *zip(*alarms, strict=True), color=colours["alarm"], label="alarm", linestyle="--"
        )
    panel.set_ylabel("share of prompts\nfarther than the fit's")
    legend(panel, 2)


def _phases(panel: Axes, scenario: dict[str, Any], *, named: bool) -> None:
    """Where each phase begins, and each fit that the service made by itself."""
    for phase in scenario["phases"]:
        panel.axvline(phase["from_s"], color=GREY, linewidth=1.0)
        if named:
            panel.text(phase["from_s"], 0.98, f" {phase['phase']}", va="top",
                       transform=panel.get_xaxis_transform())  # fmt: skip
    looks = scenario["table"]
    for before, after in pairwise(looks):
        if after["fit_id"] != before["fit_id"]:
            panel.axvline(after["at"], color=GREY, linewidth=1.2, linestyle=":")
            if named:
                panel.text(after["at"], 0.86, " new fit", va="top",
                           transform=panel.get_xaxis_transform())  # fmt: skip


def _median(at: np.ndarray, seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Medians of WINDOW neighbours, at the middle one's time."""
    width = min(WINDOW, len(seconds))
    windows = np.lib.stride_tricks.sliding_window_view(seconds, width)
    start = width // 2
    return at[start : start + len(windows)], np.median(windows, axis=1)
