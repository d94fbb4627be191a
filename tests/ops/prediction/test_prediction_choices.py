"""Which clustering is said to be best and steady, where it is known which clusters matter."""

from functools import partial

import numpy as np
import pytest

from ops.prediction.choices import Split, choices
from router.assign import build_table
from tests.router.routing_world import CENTROIDS, ENCODER, make_profile


def split_of(jitter):
    """Two kinds of prompts that want other methods; jitter: how far apart those of a kind lie."""
    rng = np.random.default_rng(0)
    learned, vectors = make_profile(per_cluster=30, spread=0.2)
    held, other = make_profile("held", per_cluster=30, spread=0.2)
    vectors, other = (
        v + jitter * rng.standard_normal(v.shape).astype(np.float32) for v in (vectors, other)
    )
    table = partial(build_table, encoder=ENCODER)
    return Split(learned, vectors, held, other, table, seed=0)


def test_clusters_that_are_there_are_worth_it_and_steady():
    split = split_of(0.05)
    beside = split.table(split.learned, split.vectors, CENTROIDS)
    rows = {row["kind"]: row for row in choices(split, ["kmeans", "gaussian"], [2], beside)}
    assert set(rows) == {"kmeans", "gaussian", "regression", "boosting"}
    for kind in ("kmeans", "gaussian"):
        assert rows[kind]["by_temperature"]["0"]["routed_over_best_single_low"] > 1.0
        assert rows[kind]["stability"] == {"methods": 1.0, "clusters": pytest.approx(1.0)}
    assert rows["boosting"]["stability"]["clusters"] is None


def test_clusters_of_noise_are_not_steady():
    split = split_of(20.0)
    beside = split.table(split.learned, split.vectors, CENTROIDS)
    [row, *_] = choices(split, ["kmeans"], [20, 100], beside)
    assert row["stability"]["clusters"] < 0.6
    assert row["asked_clusters"] == 20
