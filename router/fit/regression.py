"""A routing table's regression, from the profile that its cells come from."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from router import evidence
from router.evidence import learns_acceptance
from router.favourites import with_favourites
from router.fit.acceptance import labels_of, profiled_acceptance
from router.fit.profile import Profile, ProfileError
from router.prompt import NAMES, by_method, inputs_of
from schemas import TEMPERATURE_BANDS, RoutingTable, temperature_band

Floats = NDArray[np.float64]

COMPONENTS = 32
"""Principal components of the prompts' vectors that a regression sees."""

ROUNDS = 3
"""Turns that the regression and the clusters' intercepts take in explaining what the other one
leaves."""


@dataclass(frozen=True)
class Columns:
    """Components of prompts' vectors, and their features, each of mean 0 and deviation 1 over the
    prompts learned from: (inputs - mean [d + f]) @ weights [d + f, c + f]."""

    mean: Floats
    weights: Floats

    @classmethod
    def of(cls, inputs: Floats) -> Self:
        """Of inputs [n, d + f], the last f of which are features."""
        mean, features = inputs.mean(axis=0), len(NAMES)
        centred, d = inputs - mean, inputs.shape[1] - features
        components = np.linalg.svd(centred[:, :d], full_matrices=False)[2][:COMPONENTS]
        weights = np.zeros((d + features, len(components) + features))
        weights[:d, : len(components)] = components.T
        weights[d:, len(components) :] = np.eye(features)
        deviation = (centred @ weights).std(axis=0)
        return cls(mean, weights / np.where(deviation > 1e-9, deviation, np.inf))

    def __call__(self, inputs: Floats) -> Floats:
        """Columns [n, c + f] of inputs [n, d + f]."""
        return np.asarray((inputs - self.mean) @ self.weights)


@dataclass(frozen=True)
class Learned:
    """n answers of every one of m methods: their prompts' inputs [n, d + f], clusters [n] and
    temperature bands [n], and log tokens per decode step [n, m]."""

    inputs: Floats
    labels: NDArray[np.intp]
    bands: NDArray[np.intp]
    log_acceptance: Floats

    @classmethod
    def of(
        cls, profile: Profile, methods: Sequence[str], inputs: Floats, label_of: dict[str, int]
    ) -> Self:
        """Of a profile, the answers to prompts that all the methods answered at enough length and
        in a way to learn from; inputs [p, d + f] in the order of its prompts."""
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
                accepted.append([cell.log_acceptance for cell in cells])
        if not rows:
            raise ProfileError("rows: every prompt has an answer of a lossy method that loops")
        return cls(inputs[rows], np.asarray(labels), np.asarray(bands), np.asarray(accepted))


@dataclass(frozen=True)
class Correction:
    """A regression of m methods on k clusters: weights [m, d + f], the range [m, 2] of what they
    foretell and its mean by cluster [k, m], as in a table; and by prompt learned from, by id, its
    deviation [m]."""

    weights: Floats
    range: Floats
    mean: Floats
    deviations: dict[str, Floats] = field(default_factory=dict)

    @classmethod
    def none(cls, methods: int, clusters: int) -> Self:
        """Of a table that has none."""
        return cls(np.zeros((methods, 0)), np.zeros((methods, 2)), np.zeros((clusters, methods)))

    @classmethod
    def of(
        cls,
        profile: Profile,
        vectors: NDArray[np.float32],
        methods: Sequence[str],
        label_of: dict[str, int],
        clusters: int,
    ) -> Self:
        """Learned from a profile whose prompts have the vectors [n, d] and these clusters by id.

        By method a Bayesian linear model (MacKay, Bayesian interpolation, 1992) beside an intercept
        of the cluster, shrunk by CLUSTER_ANSWERS, and one of the temperature band, so that it
        explains what they cannot. A cluster's mean leans on that of all by as much: so does its
        cell. Raises ProfileError where no prompt was answered by all methods.
        """
        inputs = inputs_of_profile(profile, vectors)
        learned = Learned.of(profile, methods, inputs, label_of)
        weights = _weights(learned, clusters)
        said = learned.inputs @ weights.T
        whole = evidence.CLUSTER_ANSWERS * said.mean(axis=0)
        count = np.bincount(learned.labels, minlength=clusters)[:, None] + evidence.CLUSTER_ANSWERS
        mean = (_by_cluster(said, learned.labels, clusters) + whole) / count
        low, high = said.min(axis=0), said.max(axis=0)
        clipped = np.clip(inputs @ weights.T, low, high)
        deviations = {
            prompt.id: row - mean[label_of[prompt.id]]
            for prompt, row in zip(profile.prompts, clipped, strict=True)
        }
        return cls(weights, np.column_stack([low, high]), mean, deviations)


def corrected(
    table: RoutingTable,
    profile: Profile,
    vectors: NDArray[np.float32],
    default_method: str | None = None,
) -> RoutingTable:
    """The table of this profile, whose prompts have the vectors [n, d], with a regression: its
    cells say what the profile's answers were at deviation 0, and favourites are chosen anew. The
    fit id is new. Raises ProfileError where no prompt was answered by all methods.
    """
    label_of = labels_of(profile, vectors, table.centroids)
    clusters = len(table.centroids)
    made = Correction.of(profile, vectors, table.methods, label_of, clusters)
    tokens, steps = profiled_acceptance(
        *(profile, table.methods, label_of, table.objective, table.output_tokens), made.deviations
    )
    digest = hashlib.sha256(f"{table.fit_id} regression {NAMES}".encode())
    digest.update(np.asarray(made.weights, dtype=np.float32).tobytes())
    changed = table.model_copy(
        update={
            "fit_id": digest.hexdigest()[:12],
            "features": NAMES,
            "regression": made.weights,
            "regression_range": made.range,
            "regression_mean": made.mean,
            "acceptance_tokens": tokens,
            "acceptance_steps": steps,
        }
    )
    return with_favourites(changed, default_method)


def inputs_of_profile(profile: Profile, vectors: NDArray[np.float32]) -> Floats:
    """Inputs [n, d + f] of a profile's prompts with the vectors [n, d], in their order."""
    tokens = {prompt: cell.prompt_tokens for (prompt, _, _), cell in profile.cells.items()}
    lengths = [float(tokens.get(prompt.id, 1)) for prompt in profile.prompts]
    return inputs_of(vectors, [prompt.text for prompt in profile.prompts], lengths)


def predictions_of_profile(
    table: RoutingTable, profile: Profile, vectors: NDArray[np.float32]
) -> list[dict[str, float]]:
    """What the table's regression, if it has one, says of a profile's prompts with the vectors
    [n, d], in their order."""
    if not table.features:
        return [{} for _ in profile.prompts]
    return by_method(table, inputs_of_profile(profile, vectors))


def _weights(learned: Learned, clusters: int) -> Floats:
    from sklearn.linear_model import BayesianRidge

    columns = Columns.of(learned.inputs)
    y, labels = learned.log_acceptance, learned.labels
    in_band = np.eye(len(TEMPERATURE_BANDS))[learned.bands]
    x = np.column_stack([columns(learned.inputs), in_band])
    count = np.bincount(labels, minlength=clusters)[:, None] + evidence.CLUSTER_ANSWERS
    intercepts = np.zeros((clusters, y.shape[1]))
    models: list[BayesianRidge] = []
    for _ in range(ROUNDS):
        models = [BayesianRidge().fit(x, one) for one in (y - intercepts[labels]).T]
        explained = np.column_stack([model.predict(x) for model in models])
        intercepts = _by_cluster(y - explained, labels, clusters) / count
    width = columns.weights.shape[1]
    return np.stack([model.coef_[:width] for model in models]) @ columns.weights.T


def _by_cluster(values: Floats, labels: NDArray[np.intp], clusters: int) -> Floats:
    """Sums [k, m] of values [n, m]."""
    sums = np.zeros((clusters, values.shape[1]))
    np.add.at(sums, labels, values)
    return sums
