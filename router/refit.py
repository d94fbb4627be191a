"""New clusters for prompts unlike those of the fit, with the evidence about the old ones.

A refit runs k-means over the recent prompts and the old centroids, each weighted by the prompts it
stands for, so that without new prompts the clusters stay. Cluster i stays cluster i. New clusters
are appended until the recent prompts lie as near to their centroids as the fit's did, or another
cluster does not help: at least one, at most MAX_ADDED.

A prompt farther from its old centroid than NEW_GROUND of the fit's prompts is new ground. An old
cluster's evidence follows its other prompts in proportion. An added cluster keeps the part 1 - d
of it, where d is the drift of its own prompts: at least that share of them is of a kind that the
evidence is not about. It starts out uncertain, so methods are tried there.
"""

import hashlib
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

import numpy as np
from numpy.typing import NDArray

from router import cluster, drift, favourites
from router.current_fit import Fit
from router.drift import LEAST_SHARE, MIN_CLUSTER, Reference, share_farther
from router.learner import Learner
from router.predict import expected_output
from schemas import Observation, RoutingTable

Floats = NDArray[np.float64]

NEW_GROUND = 0.95
MAX_ADDED = 3
"""Most clusters that one refit adds; prompts still far away cause the next refit."""

LEAST_GAIN = 0.05
"""Least decrease of the drift for a further cluster. A kind of its own lowers it by most of its
share of the prompts; one kind split in two by 0.03 at most."""

MOST_ADDED = 64
"""Most clusters that refits together add to the table on disk: evidence spread over many clusters
is thin in each."""


CAPACITY = 2048
"""Recent answers that are kept. They take up to 18 MB: 9 KB each, 2 of them for a vector of 384
dimensions. No cell of a table remembers more."""


class RecentAnswers:
    """The newest answers with their prompts' vectors, each once, oldest first."""

    def __init__(self, dimension: int, capacity: int = CAPACITY) -> None:
        self._dimension = dimension
        self._capacity = capacity
        self._answers: OrderedDict[str, tuple[Observation, NDArray[np.float32]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def add(self, observation: Observation) -> NDArray[np.float32] | None:
        """Keep a response; return its vector [d] if it is new and has one of the right width."""
        if observation.vector is None or observation.observation_id in self._answers:
            return None
        try:
            vector = cluster.unpacked(observation.vector, self._dimension)
        except ValueError:
            return None
        self._answers[observation.observation_id] = (observation, vector)
        if len(self._answers) > self._capacity:
            self._answers.popitem(last=False)
        return vector

    def all(self) -> tuple[list[Observation], NDArray[np.float32]]:
        """Return all observations and their vectors [n, d]."""
        observations = [observation for observation, _ in self._answers.values()]
        vectors = [vector for _, vector in self._answers.values()]
        return observations, np.asarray(vectors, np.float32).reshape(-1, self._dimension)


@dataclass(frozen=True)
class _Grouping:
    """Centroids [k', d], and the one that each old centroid [k] and each prompt [n] belongs to."""

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
) -> Refitted | None:
    """Build new clusters and map the old ones onto them.

    table: the active one, of `fit`. answers: recent ones and their vectors [n, d], newest last;
    the drift is that of the last drift.WINDOW. Returns None if their prompts make no cluster of
    MIN_CLUSTER, or earlier refits leave no room for MAX_ADDED more (MOST_ADDED).
    """
    known_on_disk = fit.share.shape[1]
    if len(table.centroids) + MAX_ADDED > known_on_disk + MOST_ADDED:
        return None
    observations, vectors = answers
    labels = cluster.assign(table.centroids, vectors)
    ranks = reference.ranks(labels, cluster.distances(table.centroids, vectors, labels))
    far = ranks >= NEW_GROUND
    # The past weighs at most as much as the recent prompts, or the centroids could not move.
    count = table.output_count
    heavy = np.maximum(1.0, count * min(1.0, len(vectors) / max(1.0, count.sum())))
    found = _grouped(table.centroids, reference, vectors, far, heavy)
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
        tokens = float(stats.output_tokens)
        if not observations[index].free_to_end:
            tokens = expected_output(table, int(labels[index]))
        ground[found.of_prompts[index]] += (1.0, tokens, stats.prompt_tokens)
    fit_id = _fit_id(fit, found.centroids)
    entry = {
        "from": fit.fit_id,
        "fit_id": fit_id,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "prompts": len(vectors),
        "added": k - len(heavy),
        "drift": round(share_farther(ranks[-drift.WINDOW :]), 4),
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
) -> _Grouping | None:
    """Add clusters until the last drift.WINDOW prompts are near their centroids again."""
    distant = vectors[-drift.WINDOW :][far[-drift.WINDOW :]]
    best, least = None, math.inf
    for added in range(1, min(MAX_ADDED, len(distant)) + 1):
        start = np.concatenate([old, cluster.fit(distant, added, seed=0)])
        found = _Grouping.of(start, old, vectors, heavy)
        sizes = np.bincount(found.of_prompts, minlength=len(start))
        if sizes[len(old) :].min() < MIN_CLUSTER:
            break
        last = slice(-drift.WINDOW, None)
        left = share_farther(reference.ranks(found.of_prompts[last], found.distances[last]))
        if least - left < LEAST_GAIN:
            break
        best, least = found, left
        if least < LEAST_SHARE:
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
    answers: tuple[Sequence[Observation], NDArray[np.float32]],
) -> Learner:
    """Return a learner for the new fit with everything that `learner` knew.

    Evidence of the recent responses moves to the clusters that their prompts are in now; earlier
    evidence is divided. Machine speed and counted ids stay.
    """
    old, new = learner.table, made.fit.table(disk)
    before, after = _replayed(old, answers), _replayed(new, answers)
    earlier = [
        np.tensordot(made.share, np.maximum(0.0, live - recent), 1)
        for live, recent in zip((old.live.tokens, old.live.steps), before, strict=True)
    ]
    tokens, steps = (a + b for a, b in zip(earlier, after, strict=True))
    seen = new.with_live(tokens=tokens, steps=steps)
    added = favourites.fastest(seen)[len(old.assignment) :]
    state = learner.state() | {
        "fit_id": new.fit_id,
        "assignment": [*old.assignment, *added],
        "live_tokens": tokens.tolist(),
        "live_steps": steps.tolist(),
        "live_output": (made.share @ old.live.output).tolist(),
        "live_answers": (made.share @ old.live.answers).tolist(),
    }
    return Learner.restore(new, state)


def _replayed(
    table: RoutingTable,
    answers: tuple[Sequence[Observation], NDArray[np.float32]],
) -> tuple[Floats, Floats]:
    """Return the live tokens and steps [k, m, t] that these responses alone leave in `table`."""
    observations, vectors = answers
    nothing = np.zeros_like(table.live.tokens)
    empty = table.with_live(tokens=nothing, steps=nothing)
    learner = Learner(empty)
    pairs = zip(observations, vectors, strict=True)
    learner.observe(moved(observation, vector, table) for observation, vector in pairs)
    return learner.table.live.tokens, learner.table.live.steps


def moved(
    observation: Observation, vector: NDArray[np.float32] | None, table: RoutingTable
) -> Observation:
    """Return the observation as one of this table, in the cluster of its prompt's vector [d]."""
    label = -1 if vector is None else int(cluster.assign(table.centroids, vector[None, :])[0])
    return observation.model_copy(update={"cluster": label, "fit_id": table.fit_id})
