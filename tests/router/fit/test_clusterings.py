"""Every clustering finds what is plainly there, and ends in centroids."""

import numpy as np
import pytest

from ops.harness.flags import Clustering
from router import cluster
from router.fit.clusterings import CLUSTERINGS


def islands(sizes, seed=0):
    """Vectors [n, 8] around so many corners of a cube, and which corner."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return np.eye(8)[labels] + 0.02 * rng.standard_normal((len(labels), 8)), labels


@pytest.mark.parametrize("kind", CLUSTERINGS)
def test_islands_are_found_the_largest_first(kind):
    vectors, labels = islands((20, 60, 40))
    centroids = CLUSTERINGS[kind](vectors, 3, 0)
    assert centroids.shape == (3, 8)
    assert centroids.argmax(axis=1).tolist() == [1, 2, 0]
    assert (centroids.argmax(axis=1)[cluster.assign(centroids, vectors)] == labels).all()


@pytest.mark.parametrize("kind", CLUSTERINGS)
def test_the_same_seed_makes_the_same_clusters(kind):
    vectors, _ = islands((30, 30))
    made = [CLUSTERINGS[kind](vectors, 2, 5) for _ in range(2)]
    assert np.array_equal(*made)


def test_hdbscan_needs_no_number_and_finds_one_of_all_where_nothing_is_dense():
    vectors, _ = islands((40, 40, 40))
    assert len(CLUSTERINGS["hdbscan"](vectors, 5, 0)) == 3
    [centroid] = CLUSTERINGS["hdbscan"](np.eye(8), 2, 0)
    assert centroid == pytest.approx(np.full(8, 1 / 8))


def test_the_flag_names_them_all():
    assert [kind.value for kind in Clustering] == list(CLUSTERINGS)
