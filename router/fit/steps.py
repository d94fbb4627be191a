"""Step time on a grid of batch sizes and context lengths, from incomplete measurements."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# scikit-learn is imported where a grid is fitted: see router.cluster.

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """Mean seconds of `count` steps of one method at a batch size and context length."""

    method: int
    batch: float
    context: float
    seconds: float
    count: float


def grid(
    samples: Sequence[Sample], methods: int, batches: Sequence[int], contexts: Sequence[int]
) -> tuple[Floats, Floats]:
    """Return seconds and counts [m, B, C]; seconds never fall with batch size or context length.

    A cell holds the mean of the samples nearest to it. Empty cells get a cost that is bilinear in
    batch and context with coefficients of at least 0, fitted to the method's samples. Raises
    ValueError for a method without samples.
    """
    seconds = np.zeros((methods, len(batches), len(contexts)))
    counts = np.zeros_like(seconds)
    for s in samples:
        b = int(np.abs(np.log(np.asarray(batches) / s.batch)).argmin())
        c = int(np.abs(np.log(np.asarray(contexts) / s.context)).argmin())
        seconds[s.method, b, c] += s.seconds * s.count
        counts[s.method, b, c] += s.count
    np.divide(seconds, counts, out=seconds, where=counts > 0)

    cells = [_features(b, c) for b in batches for c in contexts]
    for m in range(methods):
        own = [s for s in samples if s.method == m]
        if not own:
            raise ValueError(f"steps: method {m} of {methods} has no step time measured")
        # Least squares on relative errors.
        design = np.asarray([_features(s.batch, s.context) for s in own])
        measured = np.asarray([[s.seconds] for s in own])
        cost = nonnegative_fit(design / measured, np.ones(len(own)))
        model = (np.asarray(cells) @ cost).reshape(counts[m].shape)
        filled = np.where(counts[m] > 0, seconds[m], model)
        seconds[m] = _monotone(filled, counts[m] + 0.1)
    return seconds, counts


def _features(batch: float, context: float) -> list[float]:
    return [1.0, batch, context / 1000.0, batch * context / 1000.0]


def nonnegative_fit(design: Floats, target: Floats) -> Floats:
    """Return least-squares coefficients [p], none below 0, of design [n, p] for target [n]."""
    from sklearn.linear_model import LinearRegression

    model = LinearRegression(positive=True, fit_intercept=False).fit(design, target)
    return np.asarray(model.coef_, dtype=np.float64)


def _monotone(values: Floats, weights: Floats) -> Floats:
    """Return the nearest surface [B, C] that does not fall along either axis."""
    from sklearn.isotonic import isotonic_regression

    smooth = values.copy()
    for _ in range(10):
        for axis in (0, 1):
            lines, line_weights = np.moveaxis(smooth, axis, -1), np.moveaxis(weights, axis, -1)
            fitted = [
                isotonic_regression(y, sample_weight=w)
                for y, w in zip(lines, line_weights, strict=True)
            ]
            smooth = np.moveaxis(np.asarray(fitted), -1, axis)
    # What alternating leaves is far below measurement noise.
    rising: Floats = np.maximum.accumulate(np.maximum.accumulate(smooth, axis=0), axis=1)
    return rising
