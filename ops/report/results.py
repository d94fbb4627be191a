"""What the paper's tables and figures are drawn from, be it published or measured."""

import json
from pathlib import Path

import numpy as np
from pydantic import Field

from router.fit.speedup_table import Assignment, assign_speedups
from schemas.base import Schema

PAPER = Path(__file__).parents[1] / "data" / "paper.json"


class Clustering(Schema):
    """Table I: how compact and distinct the clusters of the prompts' vectors are."""

    prompts: int
    clusters: int
    silhouette: float
    davies_bouldin: float
    calinski_harabasz: float
    inertia: float
    mean_size: float
    size_deviation: float


class Mean(Schema):
    """A mean over prompts, with a 95% interval where the prompts are known."""

    value: float
    low: float | None = None
    high: float | None = None


class Rate(Schema):
    """Figure 1: a method's parameters and its tokens/s over prompts.

    parameters: of the target and what drafts. deviation: the standard deviation over prompts, and
    least and most the 5th and 95th percentile, of output tokens over seconds. slower: the share of
    prompts on which it is slower than the baseline.
    """

    parameters: int | None
    tokens_per_s: float
    deviation: float
    least: float
    most: float
    slower: float


class Spot(Schema):
    """Figure 2: a prompt's vector, or a centroid, on the first two principal components."""

    x: float
    y: float
    cluster: int
    label: str


class Routed(Schema):
    """Table IV: speedups over the baseline by number of clusters.

    routed: each cluster's best method, judged on the prompts it was chosen on, as in the paper.
    held_out: on other prompts. over_best_single: held_out over the best single method on all of
    these prompts.
    """

    routed: float
    held_out: float | None = None
    over_best_single: Mean | None = None


class Results(Schema):
    """Speedups are over `baseline`, harmonic means; methods have our names.

    places: where a published number stands. labels: names that a source has for methods. overall:
    over all prompts (the paper: over all clusters). by_cluster: a method's speedup in each of k
    clusters, None where no prompt counts. portfolio: the methods that are chosen among. oracle: of
    each prompt's fastest measurement.
    """

    source: str
    baseline: str
    places: dict[str, str] = Field(default_factory=dict)
    clustering: Clustering | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    overall: dict[str, float]
    intervals: dict[str, Mean] = Field(default_factory=dict)
    by_cluster: dict[str, tuple[float | None, ...]]
    portfolio: tuple[str, ...]
    by_k: dict[int, Routed]
    claims: dict[str, float] = Field(default_factory=dict)
    rates: dict[str, Rate] = Field(default_factory=dict)
    prompts: tuple[Spot, ...] = ()
    centroids: tuple[Spot, ...] = ()
    oracle: Mean | None = None

    @property
    def measured_clusters(self) -> tuple[int, ...]:
        """The clusters in which every method of the portfolio has a speedup."""
        columns = [self.by_cluster[name] for name in self.portfolio]
        return tuple(c for c, row in enumerate(zip(*columns, strict=True)) if None not in row)

    def assigned(self, methods: tuple[str, ...]) -> Assignment:
        """The best of these methods in each measured cluster, clusters weighted equally."""
        speedups = [[self.by_cluster[name][c] for name in methods] for c in self.measured_clusters]
        return assign_speedups(methods, np.asarray(speedups, dtype=np.float64))

    def label(self, method: str) -> str:
        """The source's name for a method, or else ours."""
        return self.labels.get(method, method)


def published() -> Results:
    """The paper's own numbers."""
    return Results.model_validate(json.loads(PAPER.read_text(encoding="utf-8")))
