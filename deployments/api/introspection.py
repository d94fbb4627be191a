"""The routing table and a decision, as JSON for people and dashboards."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from deployments.request.prompt import Prompt
from router import favourites, predict
from router.prompt import explained
from schemas import TEMPERATURE_BANDS, Decision, DriftReport, RoutingTable, Snapshot

Floats = NDArray[np.float64]

# keys of every prompt the fit has seen, for `evaluate`, and the quantiles of their distances
BULKY = frozenset({"prompts", "distances"})


class Routing(BaseModel):
    """The table in force with its evidence per cluster and method; more fields than these."""

    fit_id: str
    version: int
    methods: list[str]
    clusters: int
    assignment: list[dict[str, str]] = Field(
        description="each cluster's favourite method by temperature band"
    )
    evidence: list[dict[str, Any]]
    feedback: dict[str, Any]
    drift: DriftReport | None = Field(description="null until the feedback actor was heard from")
    loads: list[dict[str, Any]]
    settings: dict[str, Any] = Field(
        description="those that change while it serves, and why the last ones were `refused`"
    )


class History(BaseModel):
    """Earlier states of what was learned, the newest first."""

    snapshots: list[Snapshot]


class Explanation(BaseModel):
    """One decision, what it saw and the evidence of its cluster; more fields than these."""

    method: str
    ranked: list[str]
    reason: str
    cluster: int
    predicted_seconds: dict[str, float]
    prompt_tokens: int
    max_tokens: int


def table_summary(table: RoutingTable) -> dict[str, Any]:
    """Return the table in force as JSON, with its centroids as points on their own main plane.

    `evidence` per cluster and method: acceptance (tokens per target step, over all temperature
    bands), the target steps behind it offline and live, the paired speedup it was fitted on, and
    the predicted tokens/s of the cluster's typical prompt, greedy and alone on a replica.
    `projection`: `points` [k, 2], and the share of the centroids' variance that the plane
    `explained`.
    """
    plane = Plane(table.centroids)
    speeds = _speeds(table)
    return {
        "fit_id": table.fit_id,
        "version": table.version,
        "encoder": table.encoder.model_dump(),
        "measured_under": table.measured_under.model_dump(),
        "methods": list(table.methods),
        "settings_hashes": table.settings_hashes,
        "lossless": table.lossless,
        "objective": table.objective,
        "predictor": "regression" if table.features else "clusters",
        "default_method": table.default_method,
        "clusters": len(table.assignment),
        "assignment": [_favourites(table, k) for k in range(len(table.assignment))],
        "temperature_bands": list(TEMPERATURE_BANDS),
        "evidence": [_evidence(table, k, speeds) for k in range(len(table.assignment))],
        "projection": {
            "points": plane.points(table.centroids).tolist(),
            "explained": plane.explained,
        },
        "live_step_ratio": _by_method(table, table.live.step_ratio),
        "live_batch_ratio": _by_method(table, table.live.batch_ratio),
        "live_prefill_ratio": _by_method(table, table.live.prefill_ratio),
        "live_profile_share": _by_method(table, table.live.profile_share),
        "provenance": {k: v for k, v in table.provenance.items() if k not in BULKY},
    }


def explanation(
    decision: Decision, prompt: Prompt, vector: NDArray[np.float32] | None, table: RoutingTable
) -> dict[str, Any]:
    """Return a decision as JSON, with its inputs and the evidence of its cluster.

    `point` is the prompt's `vector` [1, d] on the plane of the table's `projection`. `deviation`:
    per method, how far the prompt's predicted log acceptance lies from its cluster's, if the table
    has a regression.
    """
    cluster = decision.cluster
    point = None if vector is None else Plane(table.centroids).points(vector)[0].tolist()
    return {
        **decision.model_dump(),
        "prompt_tokens": len(prompt.token_ids),
        "max_tokens": prompt.sampling.max_tokens,
        "temperature": prompt.sampling.temperature,
        "point": point,
        "deviation": explained(table, cluster, decision.foretold),
        "evidence": _evidence(table, cluster, _speeds(table)) if cluster >= 0 else None,
    }


def _speeds(table: RoutingTable) -> NDArray[np.float64]:
    """Return the predicted tokens/s [k, m] of each cluster's typical prompt, greedy."""
    output = [predict.emitted_output(table, k) for k in range(len(table.assignment))]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(output)[:, None] / favourites.typical_seconds(table)[:, :, 0]


def _favourites(table: RoutingTable, cluster: int) -> dict[str, str]:
    return dict(zip(TEMPERATURE_BANDS, table.assignment[cluster], strict=True))


def _evidence(table: RoutingTable, cluster: int, speeds: NDArray[np.float64]) -> dict[str, Any]:
    tokens = (table.acceptance_tokens + table.live.tokens)[cluster].sum(axis=-1)
    steps = (table.acceptance_steps + table.live.steps)[cluster].sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        acceptance = tokens / steps
    return {
        "cluster": cluster,
        "favourites": _favourites(table, cluster),
        "output_tokens": _number(table.output_tokens[cluster]),
        "acceptance": _by_method(table, acceptance),
        "offline_steps": _by_method(table, table.acceptance_steps[cluster].sum(axis=-1)),
        "live_steps": _by_method(table, table.live.steps[cluster].sum(axis=-1)),
        "speedup": _by_method(table, table.speedup[cluster]),
        "tokens_per_s": _by_method(table, speeds[cluster]),
    }


def _by_method(table: RoutingTable, row: NDArray[np.float64]) -> dict[str, float | None]:
    return {m: _number(value) for m, value in zip(table.methods, row, strict=True)}


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None  # JSON has no NaN


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
