"""Ways to foretell a prompt's acceptance: each learns from some answers [n, m] and foretells the
logarithm of tokens per decode step [n', m] of others."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ops.prediction.answers import Answers, Learned
from router import belief
from router.correction import Columns
from router.regression import foretold
from schemas import TEMPERATURE_BANDS

Floats = NDArray[np.float64]
Form = Callable[[Learned, Answers], Floats]


def table(learned: Learned, asked: Answers) -> Floats:
    """What serves: the cell of the prompt's cluster and temperature band."""
    return np.log(belief.acceptance(learned.table)[asked.labels, :, asked.bands])


def soft_clusters(learned: Learned, asked: Answers) -> Floats:
    """All clusters' cells, weighted by exp(-squared distance / s), s the mean squared distance of a
    known prompt to its own centroid."""
    made, known = learned.table, learned.answers
    d = made.encoder.dimension
    centroids, vectors = made.centroids, asked.inputs[:, :d]
    width = ((known.inputs[:, :d] - centroids[known.labels]) ** 2).sum(axis=1).mean()
    squared = ((vectors[:, None] - centroids[None]) ** 2).sum(axis=2)
    weights = np.exp(-(squared - squared.min(axis=1, keepdims=True)) / max(width, 1e-9))
    weights /= weights.sum(axis=1, keepdims=True)
    cells = np.log(belief.acceptance(made))
    return np.stack(
        [row @ cells[:, :, band] for row, band in zip(weights, asked.bands, strict=True)]
    )


def regression(learned: Learned, asked: Answers) -> Floats:
    """What serves by a table with a regression: the cell, and the prompt's deviation from it."""
    made = learned.corrected
    said = foretold(made, asked.inputs) - made.regression_mean[asked.labels]
    return np.log(belief.acceptance(made)[asked.labels, :, asked.bands]) + said


def boosting(learned: Learned, asked: Answers) -> Floats:
    """By method gradient-boosted trees on the regression's columns, the temperature band and the
    cluster: a bound, since it cannot be updated while it serves."""
    from sklearn.ensemble import GradientBoostingRegressor

    known = learned.answers
    columns = Columns.of(known.inputs)
    x, x_asked = (
        np.column_stack([columns(of.inputs), np.eye(len(TEMPERATURE_BANDS))[of.bands], of.labels])
        for of in (known, asked)
    )
    foretold = []
    for column in known.log_acceptance.T:
        trees = GradientBoostingRegressor(
            learning_rate=0.05, subsample=0.5, min_samples_leaf=10, random_state=0
        )
        foretold.append(trees.fit(x, column).predict(x_asked))
    return np.column_stack(foretold)


def own_acceptance(_: Learned, asked: Answers) -> Floats:
    """Each answer's own, which nobody knows beforehand: the ceiling."""
    return asked.log_acceptance


FORMS: dict[str, Form] = {
    "table": table,
    "soft_clusters": soft_clusters,
    "regression": regression,
    "boosting": boosting,
    "own_acceptance": own_acceptance,
}
