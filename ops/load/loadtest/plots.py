"""`loadtest`'s figures as a plot."""

from pathlib import Path
from typing import Any

from ops.harness.plot_style import COLOURS, GREY, figure

SIZE = (9.0, 5.0)


def draw(figures: dict[str, Any], out: Path, stem: str) -> list[Path]:
    """Every answer's times over the moment it was asked for: the file written."""
    file = out / f"{stem}-timeline.svg"
    answers = figures["timeline"]
    failed = [a["due"] for a in answers if a["error"] is not None]
    panels = {"ttft": "time to first token (s)", "tpot": "time per token after it (s)"}
    with figure(file, 2, 1, size=SIZE, sharex=True) as axes:
        for (panel,), (key, label), colour in zip(axes, panels.items(), COLOURS, strict=False):
            there = [(a["due"], a[key]) for a in answers if a[key] is not None]
            panel.scatter(*zip(*there, strict=True), s=9, color=colour) if there else None
            bound = figures["slo"][f"{key}_s"]
            if bound is not None:
                panel.axhline(bound, color=GREY, linewidth=1.0, linestyle="--")
            for moment in failed:
                panel.axvline(moment, color=COLOURS[6], linewidth=0.8, alpha=0.5)
            panel.set_ylabel(label)
            panel.set_ylim(bottom=0.0)
        axes[-1][0].set_xlabel("seconds since the beginning; lines are requests without an answer")
    return [file]
