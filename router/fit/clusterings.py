"""Clusterings of prompt vectors.

All return centroids, so a routing table takes any of them and serving costs the same.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from router import cluster
from router.cluster import Labels, Vectors

Centroids = NDArray[np.float64]
Clustering = Callable[[Vectors, int, int], Centroids]
"""From vectors [n, d], a number of clusters and a seed to centroids [k', d], largest first."""

COMPONENTS = 32
"""Principal components for density estimates; 384 dimensions are too sparse."""
SHARE = 4
"""HDBSCAN takes no number of clusters; its least cluster size is a quarter of an even share."""


def minibatch(vectors: Vectors, k: int, seed: int) -> Centroids:
    """Cluster by k-means on random batches, for many prompts."""
    from sklearn.cluster import MiniBatchKMeans

    means = MiniBatchKMeans(n_clusters=k, n_init=10, random_state=seed)
    return _centroids(vectors, means.fit_predict(np.asarray(vectors, np.float64)))


def gaussian(vectors: Vectors, k: int, seed: int) -> Centroids:
    """Cluster by a mixture of k normal distributions with diagonal covariances."""
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(k, covariance_type="diag", reg_covar=1e-5, random_state=seed)
    return _centroids(vectors, mixture.fit_predict(_components(vectors)))


def hdbscan(vectors: Vectors, k: int, seed: int) -> Centroids:  # noqa: ARG001
    """Cluster dense regions, as many as there are; other prompts are left out.

    Returns one centroid of all prompts if nothing is dense.
    """
    from sklearn.cluster import HDBSCAN

    least = max(2, len(vectors) // (SHARE * k))
    labels = HDBSCAN(min_cluster_size=least, copy=True).fit_predict(_components(vectors))
    dense = labels >= 0
    if not dense.any():
        return _centroids(vectors, np.zeros(len(vectors), dtype=np.intp))
    return _centroids(vectors[dense], labels[dense])


CLUSTERINGS: dict[str, Clustering] = {
    "kmeans": cluster.fit,
    "minibatch": minibatch,
    "gaussian": gaussian,
    "hdbscan": hdbscan,
}


def _components(vectors: Vectors) -> NDArray[np.float64]:
    from sklearn.decomposition import PCA

    wide = min(COMPONENTS, *vectors.shape)
    found = PCA(n_components=wide, random_state=0).fit_transform(vectors)
    return np.asarray(found, dtype=np.float64)


def _centroids(vectors: Vectors, labels: Labels) -> Centroids:
    """Return the means of non-empty clusters, largest first."""
    names, sizes = np.unique(labels, return_counts=True)
    largest_first = names[np.argsort(-sizes, kind="stable")]
    return np.asarray([vectors[labels == name].mean(axis=0) for name in largest_first], np.float64)
