"""Drift of prompts: whether they lie farther from their centroids than at the fit.

Every prompt's distance to its centroid becomes a rank among the distances of its own cluster's
prompts at the fit, 0 to 1. While prompts are of the same kinds the ranks are uniform, whatever the
mix of kinds. The statistic is the one-sided Kolmogorov-Smirnov distance of the last `window` ranks
from uniform: where a share w of the prompts is new and the others are as before it is at most w,
so it reads as *at least this share of the recent prompts is of a kind the fit has not seen*.

Drift is called when the statistic exceeds LEAST_SHARE and what chance gives with probability
SIGNIFICANCE (Massart 1990, doi:10.1214/aop/1176990746, who bounds it for every sample size; the
finite reference counts through the two samples' effective size). There are TESTS_PER_WINDOW tests
in a window, so prompts that come independently of each other raise at most one false alarm in
window / TESTS_PER_WINDOW / SIGNIFICANCE prompts: 100,000 at the default window of 400.
"""

import math
from collections import deque
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from router import cluster

Floats = NDArray[np.float64]

SIGNIFICANCE = 0.001
LEAST_SHARE = 0.1
"""A smaller share of new prompts is not worth a refit, however certain it is."""

TESTS_PER_WINDOW = 4
REFERENCE_WINDOWS = 2
"""Windows of live prompts that make the reference where the table has none."""

MIN_CLUSTER = 20
"""Prompts that a cluster needs for a reference of its own."""

TOLERANCE = 0.002
"""Distances that differ by less count as equal: vectors travel in half precision."""

_POINTS = 21


class Reference:
    """Distances of a fit's prompts to their centroids, by cluster: quantiles [k + 1, 21].

    The last row is over all prompts; it also stands for clusters that came later. `prompts`: how
    many there were.
    """

    def __init__(self, quantiles: Floats, prompts: int) -> None:
        """Raises ValueError where the quantiles are not rising rows of 21."""
        shaped = quantiles.ndim == 2 and len(quantiles) > 1 and quantiles.shape[1] == _POINTS
        if not shaped or not (np.diff(quantiles, axis=1) >= 0.0).all() or prompts < 1:
            raise ValueError("the distances of the fit are not rows of 21 rising quantiles")
        self.quantiles = quantiles
        self.prompts = prompts

    @property
    def clusters(self) -> int:
        """k"""
        return len(self.quantiles) - 1

    @classmethod
    def of(
        cls, labels: cluster.Labels, distances: Floats, k: int, before: Self | None = None
    ) -> Self:
        """From labels and distances [n] of a fit's prompts in k clusters.

        A cluster with few prompts keeps its row of `before`; where there is none all such clusters
        share one row, or take everybody's where that is not enough either.
        """
        points = np.linspace(0.0, 1.0, _POINTS)
        everybody = np.quantile(distances, points)
        sizes = np.bincount(labels, minlength=k)
        rest = distances[sizes[labels] < MIN_CLUSTER]
        shared = np.quantile(rest, points) if len(rest) >= MIN_CLUSTER else everybody
        rows = []
        for c in range(k):
            if sizes[c] >= MIN_CLUSTER:
                rows.append(np.quantile(distances[labels == c], points))
            elif before is not None and c < before.clusters:
                rows.append(before.quantiles[c])
            else:
                rows.append(shared)
        return cls(np.asarray([*rows, everybody]), len(distances))

    @classmethod
    def of_fit(
        cls, centroids: Floats, vectors: NDArray[np.float32], labels: cluster.Labels
    ) -> Self:
        """From the vectors [n, d] and labels [n] that the centroids [k, d] are the means of."""
        sizes = np.bincount(labels, minlength=len(centroids)).astype(np.float64)
        return cls.of(labels, cluster.distances(centroids, vectors, labels, sizes), len(centroids))

    def ranks(self, labels: cluster.Labels, distances: Floats) -> Floats:
        """The share [n] of its cluster's prompts that was clearly nearer than each distance."""
        rows = np.minimum(labels, self.clusters)
        ranks = np.empty(len(distances))
        for row in np.unique(rows):
            mine = rows == row
            ranks[mine] = _rank(self.quantiles[row], distances[mine] - TOLERANCE)
        return ranks

    def state(self) -> dict[str, Any]:
        """As JSON values; `read` takes them back."""
        return {"quantiles": self.quantiles.round(5).tolist(), "prompts": self.prompts}

    @classmethod
    def read(cls, state: dict[str, Any]) -> Self:
        """Raises ValueError where it is no such state."""
        try:
            quantiles = np.asarray(state["quantiles"], dtype=np.float64)
            return cls(quantiles, int(state["prompts"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"the distances of the fit are not readable: {error!r}") from error


def _rank(quantiles: Floats, values: Floats) -> Floats:
    # From the left: of prompts that repeat, none is farther than the others.
    above = np.searchsorted(quantiles, values, side="left")
    inside = np.clip(above, 1, _POINTS - 1)
    low, high = quantiles[inside - 1], quantiles[inside]
    part = (values - low) / np.where(high > low, high - low, 1.0)
    ranks: Floats = np.clip((inside - 1 + np.clip(part, 0.0, 1.0)) / (_POINTS - 1), 0.0, 1.0)
    return ranks


def share_farther(ranks: Floats) -> float:
    """The statistic of ranks [n], n > 0."""
    ordered = np.sort(ranks)
    return max(0.0, float((ordered - np.arange(len(ordered)) / len(ordered)).max()))


def alarm_above(prompts: int, reference_prompts: int) -> float:
    """The statistic of so many prompts from which on there is drift."""
    effective = prompts * reference_prompts / (prompts + reference_prompts)
    return max(LEAST_SHARE, math.sqrt(math.log(1.0 / SIGNIFICANCE) / (2.0 * effective)))


class DriftWatch:
    """Follows the prompts of one fit; without a reference the first of them make one."""

    def __init__(self, centroids: Floats, reference: Reference | None, window: int) -> None:
        """centroids: [k, d]."""
        self.reference = reference
        self.from_live = reference is None
        self.window = window
        self._centroids = centroids
        self._first: list[tuple[cluster.Labels, Floats]] = []
        self._ranks: deque[float] = deque(maxlen=window)
        self._untested = 0

    @property
    def prompts(self) -> int:
        """How many of the window's prompts are there."""
        return len(self._ranks)

    @property
    def share_farther(self) -> float | None:
        """The statistic; None while the window is not full."""
        if len(self._ranks) < self.window:
            return None
        return share_farther(np.asarray(self._ranks))

    @property
    def alarm_above(self) -> float | None:
        """None while there is no reference."""
        if self.reference is None:
            return None
        return alarm_above(self.window, self.reference.prompts)

    def see(self, vectors: NDArray[np.float32]) -> bool:
        """Take in prompts [n, d]; True where they are a drift."""
        if not len(vectors):
            return False
        labels = cluster.assign(self._centroids, vectors)
        apart = cluster.distances(self._centroids, vectors, labels)
        if self.reference is None:
            self._collect(labels, apart)
            return False
        limit, alarm = alarm_above(self.window, self.reference.prompts), False
        for rank in self.reference.ranks(labels, apart):
            self._ranks.append(float(rank))
            self._untested += 1
            if self._untested * TESTS_PER_WINDOW < self.window:
                continue
            self._untested = 0
            share = self.share_farther
            alarm |= share is not None and share > limit
        return alarm

    def _collect(self, labels: cluster.Labels, apart: Floats) -> None:
        self._first.append((labels, apart))
        if sum(len(part) for part, _ in self._first) >= REFERENCE_WINDOWS * self.window:
            every_label, every_distance = map(np.concatenate, zip(*self._first, strict=True))
            self.reference = Reference.of(every_label, every_distance, len(self._centroids))
            self._first.clear()
