"""What was learned while serving, as a table that a service begins with."""

import hashlib
from datetime import UTC, datetime

import numpy as np

from router import belief, predict
from schemas import RoutingTable


def promoted(table: RoutingTable) -> RoutingTable:
    """A table whose profile is all that is known of this one's cells, offline and live, and whose
    seconds are those that were measured while it served; a fit of its own.

    What belongs to the traffic of the day is left behind: how much of its prompts was cached.
    """
    tokens, steps = belief.evidence(table)
    clusters = range(len(table.assignment))
    fresh = {
        name: np.zeros_like(getattr(table, name))
        for name in (
            *("live_tokens", "live_steps", "live_output", "live_answers"),
            *("live_step_weight", "live_cached_share"),
        )
    }
    ones = {n: np.ones_like(getattr(table, n)) for n in ("live_step_ratio", "live_prefill_ratio")}
    digest = hashlib.sha256(f"{table.fit_id}:{table.version}".encode() + tokens.tobytes())
    origin = {
        "fit_id": table.fit_id,
        "version": table.version,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return table.model_copy(
        update={
            **fresh,
            **ones,
            "fit_id": digest.hexdigest()[:12],
            "version": 0,
            "acceptance_tokens": tokens,
            "acceptance_steps": steps,
            "output_tokens": np.asarray([predict.expected_output(table, k) for k in clusters]),
            "output_count": table.output_count + table.live_output[:, 1],
            "step_seconds": table.step_seconds * table.live_step_ratio[:, None, None],
            "prefill_seconds": table.prefill_seconds * table.live_prefill_ratio[:, None],
            "provenance": table.provenance | {"promoted_from": origin},
        }
    )
