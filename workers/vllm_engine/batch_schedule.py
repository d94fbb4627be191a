"""The stop `batch_schedule` as vLLM's num_speculative_tokens_per_batch_size."""

from schemas import MethodSpec
from workers.batch_schedule import schedule_of

SCHEDULED = ("draft_model", "ngram", "eagle", "eagle3", "mtp")
"""Drafters whose number of tokens vLLM may change with the batch size. Its suffix and medusa
assert the number that they were loaded with."""

BatchRange = tuple[int, int, int]
"""First and last batch size, and draft tokens per sequence."""


def most_draft_tokens(spec: MethodSpec) -> int:
    """Return vLLM's num_speculative_tokens. Raises ValueError where a method never drafts."""
    most = max(schedule_of(spec).gammas)
    if most < 1:
        raise ValueError(
            f"{spec.name}: vLLM drafts at least one token somewhere: give a gamma above 0, or use "
            "vllm_naive"
        )
    return most


def batch_ranges(spec: MethodSpec) -> list[BatchRange] | None:
    """Return vLLM's num_speculative_tokens_per_batch_size; None where all batch sizes have the
    same number. The last range also covers larger batches.

    Raises ValueError where vLLM's drafter cannot follow a schedule.
    """
    schedule = schedule_of(spec)
    if len(set(schedule.gammas)) == 1:
        return None
    if spec.drafter not in SCHEDULED:
        raise ValueError(
            f"{spec.name}: vLLM's {spec.drafter} drafts the same number of tokens at every batch "
            "size: give the stop 'fixed' with one gamma, or a method that drafts with "
            f"{', '.join(SCHEDULED)}"
        )
    return schedule.ranges(schedule.batches[-1])
