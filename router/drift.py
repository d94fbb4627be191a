"""Drift detection: whether prompts lie farther from their centroids than at the fit.

Each prompt's distance to its centroid becomes a rank, 0 to 1, among the distances of its cluster's
prompts at the fit. Ranks are uniform while the kinds of prompts stay the same, whatever their mix.
The statistic is the one-sided Kolmogorov-Smirnov distance of the last WINDOW ranks from uniform.
If a share w of the prompts is new and the rest is unchanged, it is at most w. So it means: at least
this share of the recent prompts is of a kind that the fit has not seen.

There is drift when the statistic exceeds the bound that chance exceeds with probability
SIGNIFICANCE (Massart 1990, doi:10.1214/aop/1176990746, for every sample size; the finite reference
enters by the effective size of two samples).
"""

import math
from collections import deque
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from router import cluster
from schemas import DriftReport, RoutingTable

Floats = NDArray[np.float64]

WINDOW = 400
"""Prompts that are compared with those of the fit."""

SIGNIFICANCE = 0.001

TOLERANCE = 0.002
"""Distances that differ by less count as equal: vectors are sent in half precision."""

_POINTS = np.linspace(0.0, 1.0, 21)
"""Ranks of a reference's quantiles."""


class Reference:
    """Distances of a fit's prompts to their centroids, by cluster, as quantiles [k, 21].

    prompts: their number.
    """

    def __init__(self, quantiles: Floats, prompts: int) -> None:
        """Raise ValueError unless the quantiles are rows of 21 that do not fall."""
        shaped = quantiles.ndim == 2 and quantiles.shape[1] == len(_POINTS)
        if not shaped or not (np.diff(quantiles, axis=1) >= 0.0).all() or prompts < 1:
            raise ValueError("the distances of the fit are not rows of 21 rising quantiles")
        self.quantiles = quantiles
        self.prompts = prompts

    @classmethod
    def of_fit(
        cls, centroids: Floats, vectors: NDArray[np.float32], labels: cluster.Labels
    ) -> Self:
        """Make a reference from the vectors [n, d] and labels [n] of the centroids' fit.

        Clusters with fewer prompts than quantiles share the quantiles over all prompts.
        """
        sizes = np.bincount(labels, minlength=len(centroids))
        distances = cluster.distances(centroids, vectors, labels, sizes.astype(np.float64))
        everybody = np.quantile(distances, _POINTS)
        rows = [
            np.quantile(distances[labels == c], _POINTS) if size >= len(_POINTS) else everybody
            for c, size in enumerate(sizes)
        ]
        return cls(np.asarray(rows), len(distances))

    def rank(self, label: int, distance: float) -> float:
        """Return a distance's rank: the share of its cluster that is surely nearer."""
        quantiles, distance = self.quantiles[label], distance - TOLERANCE
        above = int(np.searchsorted(quantiles, distance))
        if above in (0, len(_POINTS)):
            return float(above > 0)
        # Of equal quantiles the first counts: a prompt that the fit repeats is no drift.
        return float(np.interp(distance, quantiles[above - 1 :][:2], _POINTS[above - 1 :][:2]))

    def state(self) -> dict[str, Any]:
        """Return JSON values for `read`."""
        return {"quantiles": self.quantiles.round(5).tolist(), "prompts": self.prompts}

    @classmethod
    def read(cls, state: dict[str, Any], clusters: int) -> Self:
        """Return the reference of a state. Raises ValueError if it is not one of these clusters."""
        try:
            reference = cls(np.asarray(state["quantiles"], np.float64), int(state["prompts"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"the distances of the fit are not readable: {error!r}") from error
        # Earlier versions stored a last row over all prompts.
        if len(reference.quantiles) not in (clusters, clusters + 1):
            raise ValueError(f"{len(reference.quantiles)} rows, the table has {clusters} clusters")
        return reference


def share_farther(ranks: Floats) -> float:
    """Return the statistic of ranks [n], n > 0."""
    ordered = np.sort(ranks)
    return max(0.0, float((ordered - np.arange(len(ordered)) / len(ordered)).max()))


def alarm_above(prompts: int, reference_prompts: int) -> float:
    """Return the statistic above which a window of `prompts` has drifted."""
    effective = prompts * reference_prompts / (prompts + reference_prompts)
    return math.sqrt(math.log(1.0 / SIGNIFICANCE) / (2.0 * effective))


class DriftWatch:
    """Tests the prompts of one fit for drift; without a reference there is no test."""

    def __init__(self, table: RoutingTable) -> None:
        distances = table.provenance.get("distances")
        self._centroids, clusters = table.centroids, len(table.centroids)
        self._reference = None if distances is None else Reference.read(distances, clusters)
        self._ranks: deque[float] = deque(maxlen=WINDOW)

    def report(self) -> DriftReport:
        """Return the state of the test."""
        full = len(self._ranks) == WINDOW
        reference = self._reference
        return DriftReport(
            share_farther=share_farther(np.asarray(self._ranks)) if full else None,
            alarm_above=None if reference is None else alarm_above(WINDOW, reference.prompts),
            prompts=len(self._ranks),
            window=WINDOW,
        )

    def see(self, packed: bytes) -> None:
        """Add a prompt's packed unit vector; one of another dimension is ignored."""
        if self._reference is None:
            return
        try:
            vectors = cluster.unpacked(packed, self._centroids.shape[1])[None, :]
        except ValueError:
            return
        [label] = cluster.assign(self._centroids, vectors)
        [distance] = cluster.distances(self._centroids, vectors, np.asarray([label]))
        self._ranks.append(self._reference.rank(int(label), float(distance)))
