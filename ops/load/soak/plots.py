"""`bench soak`'s figures as a plot."""

from pathlib import Path
from typing import Any

from ops.harness.plot_style import COLOURS, common_legend, figure

SIZE = (9.0, 3.6)


def draw(figures: dict[str, Any], out: Path, stem: str) -> list[Path]:
    """Memory by role over the run: the file written."""
    file, moments = out / f"{stem}-memory.svg", figures["timeline"]
    roles = sorted({role for moment in moments for role in moment["memory_mb"]})
    with figure(file, 1, 1, size=SIZE) as axes:
        panel = axes[0][0]
        for number, role in enumerate(roles):
            there = [(m["at"] / 60, m["memory_mb"].get(role)) for m in moments]
            panel.plot(*zip(*there, strict=True), color=COLOURS[number % len(COLOURS)], label=role)
        panel.axvline(figures["settings"]["warm_up_minutes"], color="grey", linestyle="--")
        panel.set_ylabel("MB that its processes alone hold")
        panel.set_xlabel("minutes; the dashed line is the end of the warm-up")
        panel.set_ylim(bottom=0.0)
        common_legend(panel, len(roles))
    return [file]
