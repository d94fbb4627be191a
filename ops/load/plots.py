"""`bench load`'s figures as plots."""

from pathlib import Path
from typing import Any

from ops.harness.plot_style import GREY, colour_of, common_legend, figure, logarithmic
from ops.load.policies import ONLY, ROUTED

SIZE = (9.0, 4.6)


def draw(figures: dict[str, Any], out: Path, stem: str) -> list[Path]:
    """Latency by load and policy, and what routing is worth: the files written."""
    return [
        _latency(figures, out / f"{stem}-latency.svg"),
        _ratios(figures, out / f"{stem}-ratios.svg"),
    ]


def _latency(figures: dict[str, Any], file: Path) -> Path:
    loads = figures["loads"]
    shares = [load["share_of_capacity"] for load in loads]
    names = list(loads[0]["policies"])
    colours = colour_of(names)
    with figure(file, 1, 2, size=SIZE, sharex=True) as axes:
        for panel, (key, label) in zip(
            axes[0],
            {"mean_latency_s": "mean latency", "p95_latency_s": "95th percentile"}.items(),
            strict=True,
        ):
            for name in names:
                panel.plot(
                    shares,
                    [load["policies"][name].get(key) for load in loads],
                    color=colours[name],
                    label=_label(name),
                    marker="o",
                    markersize=4,
                    linewidth=2.4 if name == ROUTED else 1.3,
                )
            logarithmic(panel)
            panel.set_xlabel("load, as a share of capacity")
            panel.set_ylabel(f"{label} (s)")
        common_legend(axes[0][0], 4)
    return file


def _ratios(figures: dict[str, Any], file: Path) -> Path:
    loads = figures["loads"]
    rivals = list(loads[0]["routed_over"])
    colours = colour_of([ROUTED, *rivals])
    with figure(file, 1, 2, size=SIZE, sharex=True) as axes:
        for panel, key in zip(axes[0], ("mean_latency", "p95_latency"), strict=True):
            for position, rival in enumerate(rivals):
                found = [load["routed_over"][rival][key] for load in loads]
                ratios = [f["ratio"] for f in found]
                lows = [f["ratio"] - f["ci95"][0] for f in found]
                highs = [f["ci95"][1] - f["ratio"] for f in found]
                # side by side, so that the intervals do not overlap
                aside = 0.012 * (position - (len(rivals) - 1) / 2)
                panel.errorbar(
                    [load["share_of_capacity"] + aside for load in loads],
                    ratios,
                    yerr=[lows, highs],
                    color=colours[rival],
                    label=_label(rival),
                    marker="o",
                    markersize=4,
                    capsize=2,
                    linewidth=1.3,
                )
            panel.axhline(1.0, color=GREY, linewidth=1.0, linestyle="--")
            logarithmic(panel)
            panel.set_xlabel("load, as a share of capacity")
            which = "mean" if key == "mean_latency" else "95th percentile"
            panel.set_ylabel(f"rival's latency over routed's ({which})")
        common_legend(axes[0][0], 4)
    return file


def _label(name: str) -> str:
    words = name.replace("_", " ")
    if name.startswith(ONLY):
        return f"{name.removeprefix(ONLY)} on all replicas"
    return "best single method" if name == "best_single" else words
