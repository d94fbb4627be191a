"""New clusters for prompts the fit has not seen, with what is known of the old ones.

k-means over the recent prompts and the old centroids, each a point as heavy as the prompts it
stands for: where nothing is new the clusters stay as they are. Cluster i goes on as cluster i, and
new ones come behind, as many as it takes until the recent prompts lie as near to their centroids
as the fit's did or another would not help: one at least, MAX_ADDED at most.

A prompt farther from its old centroid than NEW_GROUND of the fit's prompts is new ground. An old
cluster's evidence goes where its other prompts went, in proportion. Of that an added cluster keeps
the part 1 - d, where d is the drift of its own prompts alone: at least so many of them are of a
kind that the evidence is not about. So it starts out uncertain, and is tried out.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

import numpy as np
from numpy.typing import NDArray

from router import cluster, predict
from router.drift import LEAST_SHARE, MIN_CLUSTER, Reference, share_farther
from router.fit import Fit
from router.learner import Learner
from schemas import Observation, RouterConfig, RoutingTable

Floats = NDArray[np.float64]

NEW_GROUND = 0.95
MAX_ADDED = 3
"""Clusters that one refit adds at most; what is still far away afterwards makes another."""

LEAST_GAIN = 0.05
"""A further cluster has to lower the drift by so much: a kind of its own lowers it by most of its
share of the prompts, one kind cut in two by 0.03 at most."""

MAX_CLUSTERS = 64
"""A table has no more: evidence spread over many clusters is little in each."""


@dataclass(frozen=True)
class _Grouping:
    """Centroids [k', d]; the centroid each old one [k] and each prompt [n] now belongs to."""

    centroids: Floats
    of_old: cluster.Labels
    of_prompts: cluster.Labels
    distances: Floats

    @classmethod
    def of(cls, start: Floats, old: Floats, vectors: NDArray[np.float32], heavy: Floats) -> Self:
        points = np.concatenate([old, vectors])
        weights = np.concatenate([heavy, np.ones(len(vectors))])
        centroids = cluster.refit(start, points, weights)
        labels = cluster.assign(centroids, points)
        mass = np.bincount(labels, weights, minlength=len(centroids)).astype(np.float64)
        mine = labels[len(old) :]
        apart = cluster.distances(centroids, vectors, mine, mass)
        return cls(centroids, labels[: len(old)], mine, apart)


@dataclass(frozen=True)
class Refitted:
    """A new fit, and the share [k', k] of each old cluster's evidence that each cluster has."""

    fit: Fit
    share: Floats


def refit(
    fit: Fit,
    table: RoutingTable,
    reference: Reference,
    answers: tuple[Sequence[Observation], NDArray[np.float32]],
    window: int,
) -> Refitted | None:
    """The next fit, and what becomes of the clusters of this one.

    `table` is the one in force, of `fit`; `answers`: the recent ones and their vectors [n, d], the
    newest last, of which `window` are the drift. None where their prompts make no cluster of
    MIN_CLUSTER, or the table has MAX_CLUSTERS.
    """
    observations, vectors = answers
    labels = cluster.assign(table.centroids, vectors)
    ranks = reference.ranks(labels, cluster.distances(table.centroids, vectors, labels))
    far = ranks >= NEW_GROUND
    # The past weighs as much as the recent prompts at most, or the centroids could not follow.
    count = table.output_count
    heavy = np.maximum(1.0, count * min(1.0, len(vectors) / max(1.0, count.sum())))
    found = _grouped(table.centroids, reference, vectors, far, heavy, window)
    if found is None:
        return None

    k = len(found.centroids)
    known = np.zeros((k, len(heavy)))
    np.add.at(known, (found.of_old, np.arange(len(heavy))), heavy)
    np.add.at(known, (found.of_prompts[~far], labels[~far]), 1.0)
    share = known / known.sum(axis=0)
    for added in range(len(heavy), k):
        share[added] *= 1.0 - share_farther(ranks[found.of_prompts == added])
    ground = share @ fit.ground
    for index in np.flatnonzero(far):
        stats = observations[index].stats
        ground[found.of_prompts[index]] += (1.0, stats.output_tokens, stats.prompt_tokens)
    fit_id = _fit_id(fit, found.centroids)
    entry = {
        "from": fit.fit_id,
        "fit_id": fit_id,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "prompts": len(vectors),
        "added": k - len(heavy),
        "drift": round(share_farther(ranks[-window:]), 4),
    }
    following = replace(
        fit,
        fit_id=fit_id,
        centroids=found.centroids,
        share=share @ fit.share,
        ground=ground,
        reference=Reference.of(found.of_prompts, found.distances, k, reference),
        history=(*fit.history, entry),
    )
    return Refitted(following, share)


def _grouped(
    old: Floats,
    reference: Reference,
    vectors: NDArray[np.float32],
    far: NDArray[np.bool_],
    heavy: Floats,
    window: int,
) -> _Grouping | None:
    """With as many clusters as it takes for the last `window` prompts to be near again."""
    distant = vectors[-window:][far[-window:]]
    best, drift = None, math.inf
    for added in range(1, min(MAX_ADDED, MAX_CLUSTERS - len(old), len(distant)) + 1):
        start = np.concatenate([old, cluster.fit(distant, added, seed=0)])
        found = _Grouping.of(start, old, vectors, heavy)
        sizes = np.bincount(found.of_prompts, minlength=len(start))
        if sizes[len(old) :].min() < MIN_CLUSTER:
            break
        recent = reference.ranks(found.of_prompts[-window:], found.distances[-window:])
        left = share_farther(recent)
        if drift - left < LEAST_GAIN:
            break
        best, drift = found, left
        if drift < LEAST_SHARE:
            break
    return best


def _fit_id(fit: Fit, centroids: Floats) -> str:
    digest = hashlib.sha256(np.asarray(centroids, dtype=np.float32).tobytes())
    digest.update(fit.fit_id.encode())
    return digest.hexdigest()[:12]


def successor(
    learner: Learner,
    made: Refitted,
    disk: RoutingTable,
    config: RouterConfig,
    answers: tuple[Sequence[Observation], NDArray[np.float32]],
) -> Learner:
    """A learner for the new fit that knows what `learner` knew.

    What the recent answers taught goes where their prompts are now; what was learned before them
    is shared out. Step times and the ids counted stay.
    """
    old, new = learner.table, made.fit.table(disk)
    before, after = _replayed(old, answers, config), _replayed(new, answers, config)
    earlier = [
        np.tensordot(made.share, np.maximum(0.0, live - recent), 1)
        for live, recent in zip((old.live_tokens, old.live_steps), before, strict=True)
    ]
    tokens, steps = (a + b for a, b in zip(earlier, after, strict=True))
    seen = new.model_copy(update={"live_tokens": tokens, "live_steps": steps})
    added = predict.fastest(seen)[len(old.assignment) :]
    state = learner.state() | {
        "fit_id": new.fit_id,
        "assignment": [*old.assignment, *added],
        "live_tokens": tokens.tolist(),
        "live_steps": steps.tolist(),
        "live_output": (made.share @ old.live_output).tolist(),
        "live_answers": (made.share @ old.live_answers).tolist(),
    }
    return Learner.restore(new, config, state)


def _replayed(
    table: RoutingTable,
    answers: tuple[Sequence[Observation], NDArray[np.float32]],
    config: RouterConfig,
) -> tuple[Floats, Floats]:
    """Live tokens and steps [k, m, t] that the answers alone would have left in `table`."""
    observations, vectors = answers
    nothing = np.zeros_like(table.live_tokens)
    empty = table.model_copy(update={"live_tokens": nothing, "live_steps": nothing})
    learner = Learner(empty, config)
    pairs = zip(observations, vectors, strict=True)
    learner.observe(moved(observation, vector, table) for observation, vector in pairs)
    return learner.table.live_tokens, learner.table.live_steps


def moved(
    observation: Observation, vector: NDArray[np.float32] | None, table: RoutingTable
) -> Observation:
    """The observation as of this table: in the cluster its prompt's vector [d] lies in, if any."""
    label = -1 if vector is None else int(cluster.assign(table.centroids, vector[None, :])[0])
    return observation.model_copy(update={"cluster": label, "fit_id": table.fit_id})
