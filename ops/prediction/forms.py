"""Ways to foretell a prompt's acceptance: each learns from some answers [n, m] and foretells the
logarithm of tokens per decode step [n', m] of others."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ops.prediction.answers import Answers
from router import belief
from schemas import TEMPERATURE_BANDS, RoutingTable

Floats = NDArray[np.float64]
Form = Callable[[RoutingTable, Answers, Answers], Floats]

COMPONENTS = 32
"""Principal components of the prompts' vectors that a regression sees."""

ROUNDS = 3
"""Turns that the regression and the clusters' intercepts take in explaining what the other one
leaves."""


def table(made: RoutingTable, _: Answers, asked: Answers) -> Floats:
    """What serves: the cell of the prompt's cluster and temperature band."""
    return np.log(belief.acceptance(made)[asked.labels, :, asked.bands])


def soft_clusters(made: RoutingTable, known: Answers, asked: Answers) -> Floats:
    """All clusters' cells, weighted by exp(-squared distance / s), s the mean squared distance of a
    known prompt to its own centroid."""
    width = ((known.vectors - made.centroids[known.labels]) ** 2).sum(axis=1).mean()
    squared = ((asked.vectors[:, None] - made.centroids[None]) ** 2).sum(axis=2)
    weights = np.exp(-(squared - squared.min(axis=1, keepdims=True)) / max(width, 1e-9))
    weights /= weights.sum(axis=1, keepdims=True)
    cells = np.log(belief.acceptance(made))
    return np.stack(
        [row @ cells[:, :, band] for row, band in zip(weights, asked.bands, strict=True)]
    )


def regression(made: RoutingTable, known: Answers, asked: Answers) -> Floats:
    """By method a Bayesian linear model on the prompt's features and temperature band, and a
    cluster's intercept, shrunk by the table's CLUSTER_ANSWERS: with no features it is the table."""
    x, x_asked = _columns(known, asked)
    k = len(made.centroids)
    intercepts = np.zeros((k, len(made.methods)))
    count = np.bincount(known.labels, minlength=k)[:, None] + belief.CLUSTER_ANSWERS
    for _ in range(ROUNDS):
        left = known.log_acceptance - intercepts[known.labels]
        foretold, foretold_asked = _bayesian(x, left, x_asked)
        sums = np.zeros_like(intercepts)
        np.add.at(sums, known.labels, known.log_acceptance - foretold)
        intercepts = sums / count
    return foretold_asked + intercepts[asked.labels]


def boosting(_: RoutingTable, known: Answers, asked: Answers) -> Floats:
    """By method gradient-boosted trees on the same features and the cluster: a bound, since it
    cannot be updated while it serves."""
    from sklearn.ensemble import GradientBoostingRegressor

    x, x_asked = _columns(known, asked)
    x, x_asked = np.column_stack([x, known.labels]), np.column_stack([x_asked, asked.labels])
    foretold = []
    for column in known.log_acceptance.T:
        trees = GradientBoostingRegressor(
            learning_rate=0.05, subsample=0.5, min_samples_leaf=10, random_state=0
        )
        foretold.append(trees.fit(x, column).predict(x_asked))
    return np.column_stack(foretold)


def own_acceptance(_: RoutingTable, __: Answers, asked: Answers) -> Floats:
    """Each answer's own, which nobody knows beforehand: the ceiling."""
    return asked.log_acceptance


FORMS: dict[str, Form] = {
    "table": table,
    "soft_clusters": soft_clusters,
    "regression": regression,
    "boosting": boosting,
    "own_acceptance": own_acceptance,
}


def _columns(known: Answers, asked: Answers) -> tuple[Floats, Floats]:
    """Columns of mean 0 and deviation 1 over the known answers: components of the vectors,
    features, and temperature bands."""
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    wide = min(COMPONENTS, *known.vectors.shape)
    components = PCA(n_components=wide, random_state=0).fit(known.vectors)

    def raw(answers: Answers) -> Floats:
        return np.column_stack(
            [
                components.transform(answers.vectors),
                answers.features,
                np.eye(len(TEMPERATURE_BANDS))[answers.bands],
            ]
        )

    scaler = StandardScaler().fit(raw(known))
    return scaler.transform(raw(known)), scaler.transform(raw(asked))


def _bayesian(x: Floats, y: Floats, x_asked: Floats) -> tuple[Floats, Floats]:
    """What linear models of the columns of y [n, m] say of x [n, f] and x_asked [n', f]."""
    from sklearn.linear_model import BayesianRidge

    models = [BayesianRidge().fit(x, column) for column in y.T]
    return (
        np.column_stack([model.predict(x) for model in models]),
        np.column_stack([model.predict(x_asked) for model in models]),
    )
