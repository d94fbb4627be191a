"""A routing table of what a service has learned."""

import hashlib
from datetime import UTC, datetime

import numpy as np

from router import evidence, predict
from schemas import Live, RoutingTable


def promoted(table: RoutingTable) -> RoutingTable:
    """Return a table, with a fit of its own, whose profile is all that a served table knows.

    Its cells count offline and live evidence, and its seconds are those measured while serving.
    The share of cached prompts belongs to the day's traffic and is left out.
    """
    tokens, steps_taken = evidence.counted(table)
    clusters = range(len(table.assignment))
    digest = hashlib.sha256(f"{table.fit_id}:{table.version}".encode() + tokens.tobytes())
    origin = {
        "fit_id": table.fit_id,
        "version": table.version,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    fresh = Live.nothing(len(clusters), len(table.methods))
    return table.model_copy(
        update={
            # The new seconds hold for one sequence; full batches still differ from them.
            "live": fresh.model_copy(update={"batch_ratio": table.live.batch_ratio}),
            "fit_id": digest.hexdigest()[:12],
            "version": 0,
            "acceptance_tokens": tokens,
            "acceptance_steps": steps_taken,
            "output_tokens": np.asarray([predict.expected_output(table, k) for k in clusters]),
            "output_count": table.output_count + table.live.output[:, 1],
            "step_seconds": table.step_seconds * table.live.step_ratio[:, None, None],
            "prefill_seconds": table.prefill_seconds * table.live.prefill_ratio[:, None],
            "provenance": table.provenance | {"promoted_from": origin},
        }
    )
