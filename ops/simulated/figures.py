"""Load tests beside their simulation: the median round of both."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from ops.simulate.served import JUDGED, WITHIN

Figures = Mapping[str, float]


def beside(served: Sequence[Figures], simulated: Sequence[Figures]) -> dict[str, Any]:
    """A load test's figures, of each round as it was served and as it is simulated.

    By figure both medians, the simulated over the served, and `spread`, the largest served over the
    smallest: how well the service foretells itself. `within` is whether the JUDGED ratios are as
    near as WITHIN to 1.
    """
    figures = {name: _beside(name, served, simulated) for name in served[0]}
    near = (abs(figures[name]["ratio"] - 1.0) <= WITHIN for name in JUDGED)
    return {"figures": figures, "within": all(near)}


def _beside(
    name: str, served: Sequence[Figures], simulated: Sequence[Figures]
) -> dict[str, float | list[float]]:
    real, made = [one[name] for one in served], [one[name] for one in simulated]
    return {
        "served": median(real),
        "simulated": median(made),
        "ratio": median(made) / median(real),
        "spread": max(real) / min(real),
        "ratios": [b / a for a, b in zip(real, made, strict=True)],
    }
