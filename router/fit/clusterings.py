"""Ways to make clusters of prompt vectors. All end in centroids: a routing table takes any of them,
and a prompt costs one look at each centroid, whatever made them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from router import cluster
from router.cluster import Labels, Vectors

Centroids = NDArray[np.float64]
Clustering = Callable[[Vectors, int, int], Centroids]
"""Vectors [n, d], how many clusters, a seed: centroids [k', d], the largest cluster first."""

COMPONENTS = 32
"""Principal components in which densities are estimated: 384 dimensions are too empty for that."""
SHARE = 4
"""HDBSCAN, which is told no number, finds clusters of at least a quarter of an even share."""


def minibatch(vectors: Vectors, k: int, seed: int) -> Centroids:
    """k-means on random batches: for more prompts than are looked at at once."""
    from sklearn.cluster import MiniBatchKMeans

    means = MiniBatchKMeans(n_clusters=k, n_init=10, random_state=seed)
    return _centroids(vectors, means.fit_predict(np.asarray(vectors, np.float64)))


def gaussian(vectors: Vectors, k: int, seed: int) -> Centroids:
    """A mixture of k normal distributions with axes of their own lengths."""
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(k, covariance_type="diag", reg_covar=1e-5, random_state=seed)
    return _centroids(vectors, mixture.fit_predict(_components(vectors)))


def hdbscan(vectors: Vectors, k: int, seed: int) -> Centroids:  # noqa: ARG001
    """Dense regions, as many as there are; prompts in none of them make no centroid. One centroid
    of all where nothing is dense."""
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
    """Means of the clusters that hold anything."""
    names, sizes = np.unique(labels, return_counts=True)
    largest_first = names[np.argsort(-sizes, kind="stable")]
    return np.asarray([vectors[labels == name].mean(axis=0) for name in largest_first], np.float64)
