"""A routing table of what a service has learned."""

import hashlib
from datetime import UTC, datetime

import numpy as np

from router import predict
from router.acceptance import ANSWER_TOKENS, PRIOR_ANSWERS, Floats, acceptance
from schemas import TEMPERATURE_BANDS, Live, RoutingTable

ROUNDS = 20


def promoted(table: RoutingTable) -> RoutingTable:
    """Return a table, with a fit of its own, whose profile is all that a served table knows.

    Its acceptance and its seconds are those of the posterior. What was learned under a grammar, and
    failures, are left out.
    """
    accepted = acceptance(table)[:, :, : len(TEMPERATURE_BANDS)]
    # The posterior is of all bands, so each has all evidence.
    offline = table.acceptance_tokens.max(axis=2, keepdims=True)
    tokens = np.broadcast_to(offline, accepted.shape) + table.live.steps[:, :, None] * accepted
    clusters, methods = range(len(table.assignment)), range(len(table.methods))
    ratio = [[predict.step_ratio(table, m, batch) for batch in table.batch_grid] for m in methods]
    digest = hashlib.sha256(f"{table.fit_id}:{table.version}".encode() + tokens.tobytes())
    origin = {
        "fit_id": table.fit_id,
        "version": table.version,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return table.model_copy(
        update={
            "live": Live.nothing(len(clusters), len(methods)),
            "fit_id": digest.hexdigest()[:12],
            "version": 0,
            "acceptance_tokens": tokens,
            "acceptance_steps": _steps(tokens, accepted),
            "output_tokens": np.asarray([predict.expected_output(table, k) for k in clusters]),
            "output_count": table.output_count + table.live.output[:, 1],
            "step_seconds": table.step_seconds * np.asarray(ratio)[:, :, None],
            "prefill_seconds": table.prefill_seconds * table.live.prefill_ratio[:, None],
            "provenance": table.provenance | {"promoted_from": origin},
        }
    )


def _steps(tokens: Floats, accepted: Floats) -> Floats:
    """Return the steps [k, m, t] with which a table of these tokens predicts this acceptance.

    It shrinks its cells toward the method's mean over clusters (`router.acceptance.profiled`).
    """
    steps, prior = tokens / accepted, PRIOR_ANSWERS * ANSWER_TOKENS
    for _ in range(ROUNDS):
        mean = np.maximum(tokens.sum(axis=0), 1e-9) / np.maximum(steps.sum(axis=0), 1e-9)
        steps = np.maximum(0.0, (tokens + prior) / accepted - prior / mean)
    return steps
