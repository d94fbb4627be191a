"""Routing tables without a profile: of a portfolio, and of what a service has learned."""

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from router import predict
from router.acceptance import ANSWER_TOKENS, PRIOR_ANSWERS, Floats, acceptance
from schemas import TEMPERATURE_BANDS, EncoderInfo, Live, MeasuredUnder, MethodSpec, RoutingTable

FIRST_GUESS_SECONDS = 0.002
"""Seconds of every step and prefill until live answers show the real ones."""

OUTPUT_TOKENS = 256.0
"""Output tokens of a response until then, with the weight of one response."""

KNOWN_STEPS = 512.0


def unfitted_table(
    specs: Sequence[MethodSpec],
    encoder: EncoderInfo,
    under: MeasuredUnder,
    default: str | None = None,
    clusters: int = 1,
) -> RoutingTable:
    """Return a table without measurements, in which all methods are alike.

    The policy tries them out and learns which is best for all prompts, not for kinds of prompts.
    default: the preferred method until then; by default the first method that does not speculate,
    else the first.
    """
    plain = [spec.name for spec in specs if spec.drafter == "none"]
    favourite = default or [*plain, specs[0].name][0]
    hashes = {spec.name: spec.settings_hash() for spec in specs}
    made_for = json.dumps([under.bundle, encoder.sha256, hashes], sort_keys=True)
    k, m, t = clusters, len(specs), len(TEMPERATURE_BANDS)
    # Without speculation a step emits one token, which need not be measured.
    known = np.zeros((k, m, t))
    known[:, [spec.drafter == "none" for spec in specs]] = KNOWN_STEPS
    return RoutingTable(
        fit_id="unfitted-" + hashlib.sha256(made_for.encode()).hexdigest()[:12],
        encoder=encoder,
        measured_under=under,
        methods=tuple(hashes),
        settings_hashes=hashes,
        lossless={spec.name: spec.lossless for spec in specs},
        default_method=favourite,
        assignment=((favourite,) * t,) * k,
        # Equally far from all prompts, so no drift is ever seen.
        centroids=np.zeros((k, encoder.dimension)),
        acceptance_tokens=known,
        acceptance_steps=known,
        batch_grid=(1,),
        context_grid=(512,),
        step_seconds=np.full((m, 1, 1), FIRST_GUESS_SECONDS),
        step_count=np.zeros((m, 1, 1)),
        prefill_seconds=np.tile([FIRST_GUESS_SECONDS, 0.0], (m, 1)),
        output_tokens=np.full(k, OUTPUT_TOKENS),
        output_count=np.ones(k),
        speedup=np.full((k, m), np.nan),
        speedup_count=np.zeros((k, m)),
    )


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
