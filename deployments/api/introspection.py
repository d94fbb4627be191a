"""The routing table and a decision, as JSON for people and dashboards."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deployments.request.prompt import Prompt
from router import acceptance, predict, preferred
from router.prompt import deviations
from schemas import TEMPERATURE_BANDS, Decision, RoutingTable

# keys of every prompt the fit has seen, for `evaluate`, and the quantiles of their distances
BULKY = frozenset({"prompts", "distances"})
_LIVE = ("step_ratio", "batch_ratio", "prefill_ratio", "loss")


def table_summary(table: RoutingTable) -> dict[str, Any]:
    """Return the active table as JSON.

    `evidence` per cluster and method: expected acceptance (tokens per decode step, greedy),
    the steps behind it offline and live, the paired speedup it was fitted on, and
    the predicted tokens/s of the cluster's typical prompt, greedy and alone on a replica.
    """
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
        **{f"live_{name}": _by_method(table, getattr(table.live, name)) for name in _LIVE},
        "provenance": {k: v for k, v in table.provenance.items() if k not in BULKY},
    }


def explanation(decision: Decision, prompt: Prompt, table: RoutingTable) -> dict[str, Any]:
    """Return a decision as JSON, with its inputs and the evidence of its cluster.

    `deviation`: per method, how far the prompt's predicted log acceptance lies from its cluster's,
    if the table has a regression.
    """
    cluster = decision.cluster
    return {
        **decision.model_dump(),
        "prompt_tokens": len(prompt.token_ids),
        "max_tokens": prompt.sampling.max_tokens,
        "temperature": prompt.sampling.temperature,
        "deviation": deviations(table, cluster, decision.predicted_acceptance),
        "evidence": _evidence(table, cluster, _speeds(table)) if cluster >= 0 else None,
    }


def _speeds(table: RoutingTable) -> NDArray[np.float64]:
    """Return the predicted tokens/s [k, m] of each cluster's typical prompt, greedy."""
    output = [predict.emitted_output(table, k) for k in range(len(table.assignment))]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(output)[:, None] / preferred.typical_seconds(table)[:, :, 0]


def _favourites(table: RoutingTable, cluster: int) -> dict[str, str]:
    return dict(zip(TEMPERATURE_BANDS, table.assignment[cluster], strict=True))


def _evidence(table: RoutingTable, cluster: int, speeds: NDArray[np.float64]) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "favourites": _favourites(table, cluster),
        "output_tokens": _number(table.output_tokens[cluster]),
        "acceptance": _by_method(table, acceptance.acceptance(table)[cluster, :, 0]),
        "offline_steps": _by_method(table, table.acceptance_steps[cluster].sum(axis=-1)),
        "live_steps": _by_method(table, table.live.steps[cluster]),
        "speedup": _by_method(table, table.speedup[cluster]),
        "tokens_per_s": _by_method(table, speeds[cluster]),
    }


def _by_method(table: RoutingTable, row: NDArray[np.float64]) -> dict[str, float | None]:
    return {m: _number(value) for m, value in zip(table.methods, row, strict=True)}


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None  # JSON has no NaN
