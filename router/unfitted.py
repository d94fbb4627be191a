"""The routing table of a portfolio that nobody has measured: one cluster, all to be learned."""

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from router import belief
from schemas import TEMPERATURE_BANDS, EncoderInfo, MeasuredUnder, MethodSpec, RoutingTable

FIRST_GUESS_SECONDS = 0.002
"""Of every method's step, and of its prefill, until live answers say how long they take: less than
any real one's, so that a method looks the better the less it has been tried."""

OUTPUT_TOKENS = 256.0
"""Of an answer, and as much evidence as one answer."""

KNOWN_STEPS = belief.OFFLINE_ANSWERS * belief.ANSWER_TOKENS


def unfitted_table(
    specs: Sequence[MethodSpec],
    encoder: EncoderInfo,
    under: MeasuredUnder,
    default: str | None = None,
) -> RoutingTable:
    """A table without measurements, in which all methods are alike.

    So the policy tries them out, and learns from the answers which is best: of all prompts, not of
    kinds of them. `default` is the favourite until then; without one it is the first method that
    does not speculate, else the first.
    """
    plain = [spec.name for spec in specs if spec.drafter == "none"]
    favourite = default or [*plain, specs[0].name][0]
    hashes = {spec.name: spec.settings_hash() for spec in specs}
    made_for = json.dumps([under.bundle, encoder.sha256, hashes], sort_keys=True)
    m, t = len(specs), len(TEMPERATURE_BANDS)
    # One token a step without speculation, which need not be measured.
    known = np.zeros((1, m, t))
    known[:, [spec.drafter == "none" for spec in specs]] = KNOWN_STEPS
    return RoutingTable(
        fit_id="unfitted-" + hashlib.sha256(made_for.encode()).hexdigest()[:12],
        encoder=encoder,
        measured_under=under,
        methods=tuple(hashes),
        settings_hashes=hashes,
        lossless={spec.name: spec.lossless for spec in specs},
        default_method=favourite,
        assignment=((favourite,) * t,),
        # As far from one prompt as from any other: no drift is ever seen.
        centroids=np.zeros((1, encoder.dimension)),
        acceptance_tokens=known,
        acceptance_steps=known,
        live_tokens=np.zeros((1, m, t)),
        live_steps=np.zeros((1, m, t)),
        batch_grid=(1,),
        context_grid=(512,),
        step_seconds=np.full((m, 1, 1), FIRST_GUESS_SECONDS),
        step_count=np.zeros((m, 1, 1)),
        live_step_ratio=np.ones(m),
        live_batch_ratio=np.ones(m),
        live_step_weight=np.zeros(m),
        prefill_seconds=np.tile([FIRST_GUESS_SECONDS, 0.0], (m, 1)),
        live_prefill_ratio=np.ones(m),
        live_cached_share=np.zeros(m),
        output_tokens=np.full(1, OUTPUT_TOKENS),
        output_count=np.ones(1),
        live_output=np.zeros((1, 2)),
        live_answers=np.zeros(1),
        speedup=np.full((1, m), np.nan),
        speedup_count=np.zeros((1, m)),
        regression=np.zeros((m, 0)),
        regression_range=np.zeros((m, 2)),
        regression_mean=np.zeros((1, m)),
    )
