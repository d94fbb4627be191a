"""The clusters in two dimensions, for drawing."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Plane:
    """Project vectors on the plane of the centroids' two main directions (PCA), in one scale."""

    def __init__(self, centroids: Floats) -> None:
        """Fit the plane to centroids [k, d]. If they lie on a line, one direction is zero."""
        self._mean = centroids.mean(axis=0)
        _, scales, directions = np.linalg.svd(centroids - self._mean, full_matrices=False)
        axes = np.zeros((2, centroids.shape[1]))
        axes[: len(directions[:2])] = directions[:2]
        # SVD leaves the sign open: fixed, so that a picture is not mirrored on another machine
        largest = np.abs(axes).argmax(axis=1)
        self._axes = axes * np.where(axes[[0, 1], largest] < 0.0, -1.0, 1.0)[:, None]
        variance = scales**2
        total = variance.sum()
        shares = variance / total if total > 0.0 else np.zeros_like(variance)
        self.explained = float(shares[:2].sum())
        """Share of the centroids' variance that lies in the plane, 0 to 1."""

    def points(self, vectors: Floats | NDArray[np.float32]) -> Floats:
        """Return the points [n, 2] of vectors [n, d]."""
        points: Floats = (vectors - self._mean) @ self._axes.T
        return points
