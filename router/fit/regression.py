"""Fitting a routing table's regression on the profile of its cells."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from router.acceptance import PRIOR_ANSWERS, learns_acceptance
from router.fit.assign import labels_of, profiled_acceptance
from router.fit.profile import Profile, ProfileError, log_acceptance
from router.preferred import with_preferred
from router.prompt import NAMES, inputs_of
from schemas import TEMPERATURE_BANDS, RoutingTable, temperature_band

Floats = NDArray[np.float64]

COMPONENTS = 32
"""Principal components of the prompts' vectors that the regression uses."""

ROUNDS = 3
"""Rounds of fitting the regression and the clusters' intercepts to each other's residuals."""


class _Learned(NamedTuple):
    """Answers of all m methods to n prompts.

    inputs [n, d + f], clusters (labels) [n] and temperature bands [n] of the prompts;
    log_acceptance [n, m] is log tokens per decode step.
    """

    inputs: Floats
    labels: NDArray[np.intp]
    bands: NDArray[np.intp]
    log_acceptance: Floats


def corrected(
    table: RoutingTable,
    profile: Profile,
    vectors: NDArray[np.float32],
    default_method: str | None = None,
) -> RoutingTable:
    """Return the table of this profile with a regression.

    vectors: the prompts' [n, d]. For each method the regression is a Bayesian linear model (MacKay,
    Bayesian interpolation, 1992) with an intercept per cluster, shrunk by PRIOR_ANSWERS, and one
    per temperature band, so it explains only what these leave. A cluster's mean is shrunk toward
    the mean of all by as much as its cell. The cells count the profile's answers at deviation 0.
    Favourites are chosen anew; the fit id is new. Raises ProfileError if no prompt was answered by
    all methods.
    """
    label_of = labels_of(profile, vectors, table.centroids)
    clusters = len(table.centroids)
    inputs = inputs_of(vectors, [p.text for p in profile.prompts], lengths_of(profile))
    learned = _learned(profile, table.methods, inputs, label_of)
    weights = _weights(learned, clusters)
    predicted = learned.inputs @ weights.T
    whole = PRIOR_ANSWERS * predicted.mean(axis=0)
    count = np.bincount(learned.labels, minlength=clusters)[:, None] + PRIOR_ANSWERS
    mean = (_by_cluster(predicted, learned.labels, clusters) + whole) / count
    low, high = predicted.min(axis=0), predicted.max(axis=0)
    deviations = {
        prompt.id: row - mean[label_of[prompt.id]]
        for prompt, row in zip(profile.prompts, np.clip(inputs @ weights.T, low, high), strict=True)
    }
    tokens, steps = profiled_acceptance(profile, table.methods, label_of, clusters, deviations)
    digest = hashlib.sha256(f"{table.fit_id} regression {NAMES}".encode())
    digest.update(np.asarray(weights, dtype=np.float32).tobytes())
    changed = table.model_copy(
        update={
            "fit_id": digest.hexdigest()[:12],
            "features": NAMES,
            "regression": weights,
            "regression_range": np.column_stack([low, high]),
            "regression_mean": mean,
            "acceptance_tokens": tokens,
            "acceptance_steps": steps,
        }
    )
    return with_preferred(changed, default_method)


def _learned(
    profile: Profile, methods: Sequence[str], inputs: Floats, label_of: dict[str, int]
) -> _Learned:
    """Take the prompts of a profile that all methods answered, in responses that may be counted.

    inputs: [p, d + f] in the order of its prompts. Raises ProfileError without such a prompt.
    """
    row_of = {prompt.id: row for row, prompt in enumerate(profile.prompts)}
    paired = profile.paired(methods)
    rows, labels, bands, accepted = [], [], [], []
    for prompt, temperature in zip(paired.prompt_ids, paired.temperatures, strict=True):
        cells = [profile.cells[prompt, temperature, name] for name in methods]
        lossless = [profile.meta.lossless[name] for name in methods]
        if all(map(learns_acceptance, [cell.looping for cell in cells], lossless)):
            rows.append(row_of[prompt])
            labels.append(label_of[prompt])
            bands.append(temperature_band(temperature))
            accepted.append([log_acceptance(cell) for cell in cells])
    if not rows:
        raise ProfileError("rows: every prompt has a looping answer of a lossy method")
    return _Learned(inputs[rows], np.asarray(labels), np.asarray(bands), np.asarray(accepted))


def lengths_of(profile: Profile) -> list[float]:
    """Return the tokens of a profile's prompts, in their order; 1 without a response."""
    tokens = {prompt: cell.prompt_tokens for (prompt, _, _), cell in profile.cells.items()}
    return [float(tokens.get(prompt.id, 1)) for prompt in profile.prompts]


def _columns(inputs: Floats) -> Floats:
    """Return weights [d + f, c + f] that make columns of inputs [n, d + f]: components of their
    vectors, and features, standardised. The last f inputs are features."""
    centred, d = inputs - inputs.mean(axis=0), inputs.shape[1] - len(NAMES)
    components = np.linalg.svd(centred[:, :d], full_matrices=False)[2][:COMPONENTS]
    weights = block_diag(components.T, np.eye(len(NAMES)))
    deviation = (centred @ weights).std(axis=0)
    return np.asarray(weights / np.where(deviation > 1e-9, deviation, np.inf))


def _weights(learned: _Learned, clusters: int) -> Floats:
    from sklearn.linear_model import BayesianRidge

    columns, y, labels = _columns(learned.inputs), learned.log_acceptance, learned.labels
    in_band = np.eye(len(TEMPERATURE_BANDS))[learned.bands]
    centred = learned.inputs - learned.inputs.mean(axis=0)
    x = np.column_stack([centred @ columns, in_band])
    count = np.bincount(labels, minlength=clusters)[:, None] + PRIOR_ANSWERS
    intercepts = np.zeros((clusters, y.shape[1]))
    models: list[BayesianRidge] = []
    for _ in range(ROUNDS):
        models = [BayesianRidge().fit(x, one) for one in (y - intercepts[labels]).T]
        explained = np.column_stack([model.predict(x) for model in models])
        intercepts = _by_cluster(y - explained, labels, clusters) / count
    return np.stack([model.coef_[: columns.shape[1]] for model in models]) @ columns.T


def _by_cluster(values: Floats, labels: NDArray[np.intp], clusters: int) -> Floats:
    """Return sums [k, m] of values [n, m] by cluster."""
    sums = np.zeros((clusters, values.shape[1]))
    np.add.at(sums, labels, values)
    return sums
