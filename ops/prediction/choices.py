"""Which clustering, with how many clusters, foretells best, and how steady its choices are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from ops.prediction.answers import Answers, Learned, answers_of
from ops.prediction.figures import choose, compared
from ops.prediction.forms import FORMS
from router import cluster
from router.clusterings import CLUSTERINGS
from router.profile import Profile
from schemas import RoutingTable

Vectors = NDArray[np.float32]
MakeTable = Callable[[Profile, Vectors, NDArray[np.float64]], RoutingTable]

BY_FORM = ("regression", "boosting")
"""Forms that say more of a prompt than its cluster's cell."""


@dataclass(frozen=True)
class Split:
    """The profile that is learned from and the one that is foretold, with their prompts' vectors
    [n, d]. table: what a profile makes of centroids."""

    learned: Profile
    vectors: Vectors
    held: Profile
    held_vectors: Vectors
    table: MakeTable
    seed: int


def choices(
    split: Split, kinds: Sequence[str], sizes: Sequence[int], beside: RoutingTable
) -> list[dict[str, Any]]:
    """A row for every kind and number of clusters that there are prompts for, then one for each of
    BY_FORM with the clusters of `beside`.

    stability: two halves of the learned prompts make their own clusters and tables. `methods` is
    the share of held answers for which both choose the same method, `clusters` the adjusted Rand
    index of what both do with the held prompts (1: alike, 0: by chance; None for forms).
    """
    rows = []
    for kind in kinds:
        for k in sizes:
            if 2 * k <= len(split.vectors):
                rows.append(_row(split, kind, k, "table", None))
    for form in BY_FORM:
        rows.append(_row(split, form, len(beside.centroids), form, beside.centroids))
    return rows


def _row(
    split: Split, kind: str, k: int, form: str, centroids: NDArray[np.float64] | None
) -> dict[str, Any]:
    def fitted(vectors: Vectors) -> NDArray[np.float64]:
        return CLUSTERINGS[kind](vectors, k, split.seed) if centroids is None else centroids

    learned, asked = _learned(split, split.learned, split.vectors, fitted(split.vectors))
    most = split.held.meta.max_tokens
    found = compared(learned, asked, most, split.seed, {form: FORMS[form]})[form]
    labels, methods = [], []
    for half in _halves(split):
        part = split.learned.only([split.learned.prompts[row].id for row in half])
        vectors = split.vectors[half]
        of_half, asked = _learned(split, part, vectors, fitted(vectors))
        _, chosen = choose(of_half, FORMS[form], asked, most)
        methods.append(chosen)
        labels.append(cluster.assign(of_half.table.centroids, split.held_vectors))
    return {
        "kind": kind,
        "asked_clusters": k,
        "clusters": len(learned.table.centroids),
        **found,
        "stability": {
            "methods": float((methods[0] == methods[1]).mean()),
            "clusters": None if centroids is not None else float(adjusted_rand_score(*labels)),
        },
    }


def _learned(
    split: Split, profile: Profile, vectors: Vectors, centroids: NDArray[np.float64]
) -> tuple[Learned, Answers]:
    """What is learned from a profile by these clusters, and what is asked of the held one."""
    learned = Learned(split.table(profile, vectors, centroids), profile, vectors)
    held = cluster.assign(centroids, split.held_vectors)
    return learned, answers_of(split.held, split.held_vectors, held, learned.table)


def _halves(split: Split) -> list[NDArray[np.intp]]:
    order = np.random.default_rng(split.seed).permutation(len(split.vectors))
    return [np.sort(half) for half in np.array_split(order, 2)]
