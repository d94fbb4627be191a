"""The routing table of a portfolio without a profile: everything is to be learned."""

import hashlib
import json
from collections.abc import Sequence

import numpy as np

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
        live=Live.nothing(k, m),
        regression=np.zeros((m, 0)),
        regression_range=np.zeros((m, 2)),
        regression_mean=np.zeros((k, m)),
    )
