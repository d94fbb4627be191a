"""A made-up world in which more than its cluster says what n-gram accepts of a prompt's answer."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from routing_world import (
    ACCEPTANCE,
    CENTROIDS,
    ENCODER,
    STEP,
    decode_steps,
    make_profile,
    with_answer,
)

from router.fit.assign import build_table
from router.fit.profile import Profile
from router.fit.regression import corrected
from schemas import RoutingTable

SLOPE = 1.0
"""Log acceptance of n-gram, beyond its cluster's, by what the third number of a vector says."""
TOKENS = 481
"""Of an answer: so many that rounding steps hardly matters."""


def made_profile(
    name: str = "fit", per_cluster: int = 100, slope: float = SLOPE, shift: float = 0.0
) -> tuple[Profile, NDArray[np.float32]]:
    """Prompts of two clusters, the third number of whose vectors is from -0.5 to 0.5, in the second
    cluster by `shift` more."""
    profile, vectors = make_profile(name, per_cluster=per_cluster)
    said = np.random.default_rng(len(name) + 7).uniform(-0.5, 0.5, len(vectors))
    said += shift * (np.arange(len(vectors)) % 2)
    vectors[:, 2] = said
    known = {prompt.id: (i % 2, said[i]) for i, prompt in enumerate(profile.prompts)}

    def changed(row):
        cluster, own = known[row.prompt_id]
        deviation = slope * own if row.method == "ngram" else 0.0
        steps = decode_steps(ACCEPTANCE[row.method][cluster], deviation, TOKENS)
        return with_answer(row, TOKENS, steps, STEP[row.method])

    return replace(profile, rows=tuple(map(changed, profile.rows))), vectors


def made_tables(**how: float) -> tuple[RoutingTable, RoutingTable]:
    """The table of such a profile, and the same with a regression."""
    profile, vectors = made_profile(**how)
    table = build_table(profile, vectors, CENTROIDS, ENCODER)
    return table, corrected(table, profile, vectors)
