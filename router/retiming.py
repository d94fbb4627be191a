"""A routing table with one method's step times measured anew, after its settings changed."""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from router import steps
from router.assign import with_favourites
from schemas import RoutingTable
from schemas.profile import StepRow


def retimed(
    table: RoutingTable,
    method: str,
    settings_hash: str,
    rows: Sequence[StepRow],
    tokens_ratio: Callable[[int], float],
) -> RoutingTable:
    """The table with the rows as the method's step seconds and counts, for its new settings.

    tokens_ratio: by batch size the tokens that a step emits under the new settings, over those
    that it emitted when the table's acceptance was measured. Acceptance knows no batch size, so a
    step that emits half as many tokens is entered as one of twice the seconds, and predictions of
    seconds per token are right at every batch. What was learned live of the old settings' steps
    is forgotten, and each cluster's favourite is chosen anew. The fit id is new: live counts of the
    old table are of other settings.
    """
    index = table.methods.index(method)
    samples = [
        steps.Sample(0, row.batch, row.context, row.seconds / tokens_ratio(row.batch), row.count)
        for row in rows
    ]
    seconds, counts = steps.grid(samples, 1, table.batch_grid, table.context_grid)
    step_seconds, step_count = table.step_seconds.copy(), table.step_count.copy()
    step_seconds[index], step_count[index] = seconds[0], counts[0]
    ratio, weight = table.live_step_ratio.copy(), table.live_step_weight.copy()
    batch_ratio = table.live_batch_ratio.copy()
    ratio[index], batch_ratio[index], weight[index] = 1.0, 1.0, 0.0
    digest = hashlib.sha256(f"{table.fit_id} {method} {settings_hash}".encode())
    digest.update(np.ascontiguousarray(step_seconds).tobytes())
    changed = table.model_copy(
        update={
            "fit_id": digest.hexdigest()[:12],
            "settings_hashes": {**table.settings_hashes, method: settings_hash},
            "step_seconds": step_seconds,
            "step_count": step_count,
            "live_step_ratio": ratio,
            "live_batch_ratio": batch_ratio,
            "live_step_weight": weight,
        }
    )
    return with_favourites(changed, table.default_method)
