"""How many times as long as measured an answer's steps took, if it can tell."""

from router import predict
from schemas import DecodeStats, RoutingTable

MIXED_SHARE = 0.2
"""An answer of which more steps than that were shared with other methods says nothing of its own
method's steps."""


def step_factor(table: RoutingTable, method: int, stats: DecodeStats) -> float | None:
    """Of its decode steps; None where they say nothing of the method.

    The reading of others' prompts does not; nor does a mixed batch's step, which takes as long as
    its slowest method, whichever that was.
    """
    steps = stats.target_steps - 1
    seconds = stats.decode_seconds - stats.stalled_seconds
    if steps < 1 or seconds <= 0.0 or stats.mixed_steps > MIXED_SHARE * steps:
        return None
    context = stats.context_length - stats.output_tokens / 2.0
    grid = predict.step_seconds(table, method, max(1.0, stats.mean_batch), context)
    return float(seconds / steps / (grid / table.live_step_ratio[method]))
