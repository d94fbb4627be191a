"""Drift detection: whether prompts lie farther from their centroids than at the fit.

Each prompt's distance to its centroid becomes a rank, 0 to 1, among the distances of its cluster's
prompts at the fit. Ranks are uniform while the kinds of prompts stay the same, whatever their mix.
The statistic is the one-sided Kolmogorov-Smirnov distance of the last WINDOW ranks from uniform.
If a share w of the prompts is new and the rest is unchanged, it is at most w. So it means: at least
this share of the recent prompts is of a kind that the fit has not seen.

There is drift when the statistic exceeds LEAST_SHARE and the bound that chance exceeds with
probability SIGNIFICANCE (Massart 1990, doi:10.1214/aop/1176990746, for every sample size; the
finite reference enters by the effective size of two samples).
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
LEAST_SHARE = 0.1
"""Least share of new prompts that is worth an alarm."""

REFERENCE_WINDOWS = 2
"""Windows of live prompts that make the reference when the table has none."""

MIN_CLUSTER = 20
"""Least prompts of a cluster with a reference of its own."""

TOLERANCE = 0.002
"""Distances that differ by less count as equal, because vectors are sent in half precision."""

_POINTS = 21


class Reference:
    """Distances of a fit's prompts to their centroids, by cluster, as quantiles [k + 1, 21].

    The last row is over all prompts. prompts: their number.
    """

    def __init__(self, quantiles: Floats, prompts: int) -> None:
        """Raise ValueError unless the quantiles are rows of 21 that do not fall."""
        shaped = quantiles.ndim == 2 and len(quantiles) > 1 and quantiles.shape[1] == _POINTS
        if not shaped or not (np.diff(quantiles, axis=1) >= 0.0).all() or prompts < 1:
            raise ValueError("the distances of the fit are not rows of 21 rising quantiles")
        self.quantiles = quantiles
        self.prompts = prompts

    @property
    def clusters(self) -> int:
        """The number of clusters, k."""
        return len(self.quantiles) - 1

    @classmethod
    def of(cls, labels: cluster.Labels, distances: Floats, k: int) -> Self:
        """Make a reference from labels and distances [n] of a fit's prompts in k clusters.

        Clusters with few prompts share a row; if they have too few prompts together, they use the
        row over all prompts.
        """
        points = np.linspace(0.0, 1.0, _POINTS)
        everybody = np.quantile(distances, points)
        sizes = np.bincount(labels, minlength=k)
        rest = distances[sizes[labels] < MIN_CLUSTER]
        shared = np.quantile(rest, points) if len(rest) >= MIN_CLUSTER else everybody
        rows = [
            np.quantile(distances[labels == c], points) if sizes[c] >= MIN_CLUSTER else shared
            for c in range(k)
        ]
        return cls(np.asarray([*rows, everybody]), len(distances))

    @classmethod
    def of_fit(
        cls, centroids: Floats, vectors: NDArray[np.float32], labels: cluster.Labels
    ) -> Self:
        """Make a reference from the vectors [n, d] and labels [n] of the centroids' fit."""
        sizes = np.bincount(labels, minlength=len(centroids)).astype(np.float64)
        return cls.of(labels, cluster.distances(centroids, vectors, labels, sizes), len(centroids))

    def ranks(self, labels: cluster.Labels, distances: Floats) -> Floats:
        """Return each distance's rank [n]: the share of its cluster that is clearly nearer."""
        ranks = np.empty(len(distances))
        for row in np.unique(labels):
            mine = labels == row
            ranks[mine] = _rank(self.quantiles[row], distances[mine] - TOLERANCE)
        return ranks

    def state(self) -> dict[str, Any]:
        """Return JSON values for `read`."""
        return {"quantiles": self.quantiles.round(5).tolist(), "prompts": self.prompts}

    @classmethod
    def read(cls, state: dict[str, Any]) -> Self:
        """Return the reference of a state. Raises ValueError if it is not one."""
        try:
            quantiles = np.asarray(state["quantiles"], dtype=np.float64)
            return cls(quantiles, int(state["prompts"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"the distances of the fit are not readable: {error!r}") from error


def _rank(quantiles: Floats, values: Floats) -> Floats:
    # From the left, so that repeats of a prompt have the same rank.
    above = np.searchsorted(quantiles, values, side="left")
    inside = np.clip(above, 1, _POINTS - 1)
    low, high = quantiles[inside - 1], quantiles[inside]
    part = (values - low) / np.where(high > low, high - low, 1.0)
    ranks: Floats = np.clip((inside - 1 + np.clip(part, 0.0, 1.0)) / (_POINTS - 1), 0.0, 1.0)
    return ranks


def share_farther(ranks: Floats) -> float:
    """Return the statistic of ranks [n], n > 0."""
    ordered = np.sort(ranks)
    return max(0.0, float((ordered - np.arange(len(ordered)) / len(ordered)).max()))


def alarm_above(prompts: int, reference_prompts: int) -> float:
    """Return the statistic above which a window of `prompts` has drifted."""
    effective = prompts * reference_prompts / (prompts + reference_prompts)
    return max(LEAST_SHARE, math.sqrt(math.log(1.0 / SIGNIFICANCE) / (2.0 * effective)))


class DriftWatch:
    """Tests the prompts of one fit for drift; without a reference the first prompts make one."""

    def __init__(self, centroids: Floats, reference: Reference | None) -> None:
        """centroids: [k, d]."""
        self.reference = reference
        self.from_live = reference is None
        self.window = WINDOW
        self._centroids = centroids
        self._first: list[tuple[cluster.Labels, Floats]] = []
        self._ranks: deque[float] = deque(maxlen=WINDOW)

    @classmethod
    def of(cls, table: RoutingTable) -> Self:
        """Return the watch of a table's own clusters."""
        distances = table.provenance.get("distances")
        return cls(table.centroids, None if distances is None else Reference.read(distances))

    @property
    def prompts(self) -> int:
        """The number of prompts in the window."""
        return len(self._ranks)

    @property
    def share_farther(self) -> float | None:
        """The statistic, or None until the window is full."""
        if len(self._ranks) < self.window:
            return None
        return share_farther(np.asarray(self._ranks))

    @property
    def alarm_above(self) -> float | None:
        """The statistic above which there is drift, or None without a reference."""
        if self.reference is None:
            return None
        return alarm_above(self.window, self.reference.prompts)

    def report(self) -> DriftReport:
        """Return the state of the test."""
        return DriftReport(
            share_farther=self.share_farther,
            alarm_above=self.alarm_above,
            prompts=self.prompts,
            window=self.window,
            reference=None if self.reference is None else "live" if self.from_live else "fit",
        )

    def state(self) -> dict[str, Any] | None:
        """Return what the first prompts made, as JSON values for `restore`."""
        return self.reference.state() if self.from_live and self.reference else None

    def restore(self, state: dict[str, Any] | None) -> None:
        """Continue with the reference of a state, unless the fit has one."""
        if self.reference is None and state is not None:
            self.reference = Reference.read(state)

    def see(self, packed: bytes) -> None:
        """Add a prompt's packed unit vector; one of another dimension is ignored."""
        try:
            vectors = cluster.unpacked(packed, self._centroids.shape[1])[None, :]
        except ValueError:
            return
        labels = cluster.assign(self._centroids, vectors)
        apart = cluster.distances(self._centroids, vectors, labels)
        if self.reference is None:
            self._collect(labels, apart)
            return
        self._ranks.extend(self.reference.ranks(labels, apart).tolist())

    def _collect(self, labels: cluster.Labels, apart: Floats) -> None:
        self._first.append((labels, apart))
        if sum(len(part) for part, _ in self._first) >= REFERENCE_WINDOWS * self.window:
            every_label, every_distance = map(np.concatenate, zip(*self._first, strict=True))
            self.reference = Reference.of(every_label, every_distance, len(self._centroids))
            self._first.clear()
