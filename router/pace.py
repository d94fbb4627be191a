"""How many times as long as measured an answer's steps and its prefill took, if it can tell."""

from router import predict
from schemas import DecodeStats, RoutingTable

MIXED_SHARE = 0.2
"""An answer of which more steps than that were shared with other methods says nothing of its own
method's steps."""

ALONE_BATCH = 1.5
"""Sequences per step up to which an answer counts as alone on its replica for the most part."""

LEAST_READ = 32
"""Tokens that a partly cached prompt leaves to be read, for its prefill to count: the line was
measured on whole prompts, and a forward of a few tokens takes longer than its constant says."""


def step_factor(table: RoutingTable, method: int, stats: DecodeStats) -> float | None:
    """Of its decode steps; None where they say nothing of the method.

    The reading of others' prompts does not; nor does a mixed batch's step, which takes what all of
    its methods make it take.
    """
    steps = stats.target_steps - 1
    seconds = stats.decode_seconds - stats.stalled_seconds
    if steps < 1 or seconds <= 0.0 or stats.mixed_steps > MIXED_SHARE * steps:
        return None
    context = stats.context_length - stats.output_tokens / 2.0
    grid = predict.step_seconds(table, method, max(1.0, stats.mean_batch), context)
    return float(seconds / steps / (grid / table.live_step_ratio[method]))


def prefill_factor(table: RoutingTable, method: int, stats: DecodeStats) -> float | None:
    """Of its prefill, the wait for a place left out; None where it says nothing of the method.

    On a busy replica a prompt is read in turns with others' steps, or in one forward with them:
    what that takes is not the method's. How many there were is only known of the steps that came
    next, so that an answer without any is not counted.
    """
    read = stats.prompt_tokens - stats.cached_prompt_tokens
    alone = stats.target_steps > 1 and stats.mean_batch <= ALONE_BATCH
    if not alone or (stats.cached_prompt_tokens and read < LEAST_READ):
        return None
    seconds = stats.first_token_seconds - stats.queue_seconds
    measured = predict.measured_prefill(table, method, read)
    return seconds / measured if seconds > 0.0 and measured > 0.0 else None
