import numpy as np
import pytest

from router.cluster import assign, fit, silhouette


def blobs(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = np.eye(8)[:3]
    labels = np.repeat([0, 1, 2], [60, 40, 20])
    vectors = centres[labels] + 0.05 * rng.standard_normal((120, 8))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), labels


def test_clear_clusters_are_found_largest_first() -> None:
    vectors, truth = blobs()
    centroids = fit(vectors, 3, seed=0)
    labels = assign(centroids, vectors)
    np.testing.assert_array_equal(labels, truth)
    np.testing.assert_array_equal(fit(vectors, 3, seed=0), centroids)
    assert silhouette(vectors, labels) > 0.8 > silhouette(vectors, np.roll(labels, 30))


def test_assign_is_the_nearest_in_euclidean_distance() -> None:
    vectors, _ = blobs(1)
    centroids = fit(vectors, 3, seed=0) * [[1.0], [0.5], [2.0]]
    distances = np.linalg.norm(vectors[:, None] - centroids, axis=2)
    np.testing.assert_array_equal(assign(centroids, vectors), distances.argmin(axis=1))


def test_what_cannot_be_clustered_is_refused() -> None:
    vectors, _ = blobs()
    with pytest.raises(ValueError, match="clusters: 200 asked"):
        fit(vectors, 200, seed=0)
    with pytest.raises(ValueError, match="shape"):
        assign(np.eye(4), vectors)
    with pytest.raises(ValueError, match="two clusters"):
        silhouette(vectors, np.zeros(120, dtype=np.intp))
