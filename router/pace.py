"""How many times as long as measured an answer's steps and its prefill took, if it can tell."""

from math import log
from typing import NamedTuple

from router import predict
from schemas import DecodeStats, RoutingTable

ALONE_BATCH = 1.5
"""Sequences per step up to which an answer counts as alone on its replica for the most part."""

LEAST_READ = 32
"""Tokens that a partly cached prompt leaves to be read, for its prefill to count: the line was
measured on whole prompts, and a forward of a few tokens takes longer than its constant says."""


class Pace(NamedTuple):
    """What an answer's steps say: the logarithm of how many times as long as expected they took,
    and of the methods (indices) that took part in them the share of each in the batch and its part
    in the seconds that were expected."""

    beyond: float
    parts: dict[int, tuple[float, float]]


def of_steps(table: RoutingTable, stats: DecodeStats) -> Pace | None:
    """Of an answer's decode steps; None where they say nothing. The reading of others' prompts does
    not count.

    A step that several methods share takes what they take on the mean (`StepTimes.mixed`). By their
    parts in that, a few sequences beside many of another method are not taken for what makes a
    batch slow.
    """
    steps = stats.target_steps - 1
    seconds = stats.decode_seconds - stats.stalled_seconds
    batch = max(1.0, stats.mean_batch)
    by_method = stats.batch_by_method or {stats.method: batch}
    known = {name: m for m, name in enumerate(table.methods)}
    counts = {known[name]: count for name, count in by_method.items() if count and name in known}
    if steps < 1 or seconds <= 0.0 or not counts:
        return None
    times = predict.StepTimes(table, stats.context_length - stats.output_tokens / 2.0)
    whole, expected = sum(counts.values()), times.mixed(counts, batch)
    if expected <= 0.0:
        return None
    return Pace(
        log(seconds / steps / expected),
        {
            m: (count / whole, count * times.of(m, batch) / (whole * expected))
            for m, count in counts.items()
        },
    )


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
