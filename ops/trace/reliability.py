"""How far what drafters say of their draft tokens holds."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

BINS = 10
"""Of confidence, equally wide."""


class Reliability:
    """How often a drafter's tokens were kept, by how sure it was of them."""

    def __init__(self) -> None:
        self._sums: NDArray[np.float64] = np.zeros((BINS, 3))

    def add(self, kept: Sequence[float], confidences: Sequence[float]) -> None:
        """Levels of one position; a level's share is of those on which the one before was kept."""
        for (before, now), sure in zip(pairwise((1.0, *kept)), confidences, strict=False):
            if before > 0.0:
                row = self._sums[min(BINS - 1, int(sure * BINS))]
                row += before * np.asarray((1.0, sure, now / before))

    def figures(self) -> list[dict[str, float]]:
        """The bins with anything in them: drafts, their mean confidence, the share kept."""
        return [
            {"drafts": float(count), "confidence": float(sure / count), "kept": float(kept / count)}
            for count, sure, kept in self._sums
            if count
        ]
