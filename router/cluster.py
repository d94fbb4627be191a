"""k-means over prompt vectors: fit, assign, and how distinct the clusters are."""

import numpy as np
from numpy.typing import NDArray

# scikit-learn is imported where clusters are made. The import takes most of a second, and replicas
# do not need it.

Vectors = NDArray[np.float32] | NDArray[np.float64]
Labels = NDArray[np.intp]


def fit(vectors: Vectors, k: int, seed: int) -> NDArray[np.float64]:
    """Fit k-means and return centroids [k, d], the largest cluster first.

    The best of ten k-means++ starts counts. Raises ValueError for fewer vectors than clusters.
    """
    if not 1 <= k <= len(vectors):
        raise ValueError(f"clusters: {k} asked for, but there are {len(vectors)} prompts")
    from sklearn.cluster import KMeans

    means = KMeans(n_clusters=k, n_init=10, random_state=seed).fit(np.asarray(vectors, np.float64))
    order = np.argsort(-np.bincount(means.labels_, minlength=k), kind="stable")
    return np.asarray(means.cluster_centers_[order], dtype=np.float64)


def assign(centroids: NDArray[np.float64], vectors: Vectors) -> Labels:
    """Return the nearest centroid [n] (Euclidean) of each vector [n, d].

    Raises ValueError for vectors of another dimension.
    """
    if vectors.ndim != 2 or vectors.shape[1] != centroids.shape[1]:
        raise ValueError(f"vectors have shape {vectors.shape}, centroids {centroids.shape}")
    squared: NDArray[np.float64] = (centroids**2).sum(axis=1) - 2.0 * (vectors @ centroids.T)
    nearest: Labels = np.argmin(squared, axis=1)
    return nearest


def distances(
    centroids: NDArray[np.float64],
    vectors: Vectors,
    labels: Labels,
    sizes: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return the Euclidean distance [n] of each vector [n, d] to its centroid.

    sizes: [k] the mass of each cluster when the vectors, of mass 1 each, were part of its fit. The
    distance is then to the mean of the others. A centroid is nearer to the vectors it was made of
    than to further prompts of the same kind, in 384 dimensions considerably.
    """
    apart: NDArray[np.float64] = np.linalg.norm(vectors - centroids[labels], axis=1)
    if sizes is not None:
        mass = sizes[labels]
        apart *= mass / np.maximum(mass - 1.0, 1.0)
    return apart


def packed(vector: Vectors) -> bytes:
    """Pack a unit vector [d] or [1, d] as little-endian float16."""
    return np.asarray(vector, dtype="<f2").tobytes()


def unpacked(data: bytes, dimension: int) -> NDArray[np.float32]:
    """Unpack a vector [d]. Raises ValueError for another dimension, NaN or infinity."""
    if len(data) != 2 * dimension:
        raise ValueError(f"{len(data)} bytes are not a vector of {dimension} dimensions")
    vector = np.frombuffer(data, dtype="<f2").astype(np.float32)
    if not np.isfinite(vector).all():
        raise ValueError("the vector holds NaN or infinity")
    return vector


def silhouette(vectors: Vectors, labels: Labels) -> float:
    """Return how distinct clusters are, from -1 to 1 (Table I of the paper).

    It compares every two prompts, so a sample counts. Raises ValueError with fewer than two
    non-empty clusters.
    """
    from sklearn.metrics import silhouette_score

    if len(np.unique(labels)) < 2:
        raise ValueError("clusters: quality needs at least two clusters with prompts in them")
    most = min(2000, len(vectors))
    return float(silhouette_score(vectors, labels, sample_size=most, random_state=0))
