"""The usage of a request: tokens, and what speculation did."""

from collections.abc import Sequence
from typing import Any

from deployments.request.answered import Answer
from schemas import DecodeStats

_OF_THE_LONGEST = (
    *("queue_seconds", "decode_seconds", "draft_seconds", "verify_seconds", "sample_seconds"),
    *("other_seconds", "stalled_seconds", "total_seconds", "mean_batch"),
)


def usage(
    answers: Sequence[Answer], firsts: Sequence[Answer], reasoning_tokens: int = 0
) -> dict[str, Any]:
    """Return token counts and what speculation did, summed over the choices; a prompt counts once.

    Seconds are the engine's, of the choice that took longest, since choices are decoded side by
    side. `mean_acceptance_length` counts the bonus token; `routing_ms` is embedding and choosing.
    If a method failed and another continued, all but the token counts are of the latter. firsts:
    each prompt's first choice; the very first gives method and decision.
    """
    answer, choices = firsts[0], _stats(answers)
    steps = sum(one.target_steps for one in choices)
    tokens = sum(one.output_tokens for one in choices)
    stats = max(choices, key=lambda one: one.total_seconds)
    seconds = stats.total_seconds
    speculative = {
        "method": answer.method,
        "cluster": answer.decision.cluster,
        "reason": answer.reason,
        "target_steps": steps,
        "drafted_tokens": sum(one.drafted_tokens for one in choices),
        "accepted_tokens": sum(one.accepted_tokens for one in choices),
        "mean_acceptance_length": tokens / max(1, steps),
        "tokens_per_s": tokens / seconds if seconds > 0 else 0.0,
        **{name: getattr(stats, name) for name in _OF_THE_LONGEST},
        "looping": any(one.looping for one in choices),
        "routing_ms": answer.routed.seconds * 1e3,
        "engine_first_token_ms": stats.first_token_seconds * 1e3,
    }
    completion_tokens = tokens + sum(one.earlier_tokens for one in answers)
    read = sum(one.prompt_tokens for one in _stats(firsts))
    prompt_tokens = read - sum(one.earlier_tokens for one in firsts)
    cached_tokens = sum(one.cached_prompt_tokens for one in _stats(firsts))
    accepted = sum(one.accepted_prediction_tokens for one in choices)
    drafted = sum(one.drafted_prediction_tokens for one in choices)
    return {
        "prompt_tokens": prompt_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
        "completion_tokens": completion_tokens,
        "completion_tokens_details": {
            "reasoning_tokens": reasoning_tokens,
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": drafted - accepted,
        },
        "total_tokens": prompt_tokens + completion_tokens,
        "speculative": speculative,
    }


def _stats(answers: Sequence[Answer]) -> list[DecodeStats]:
    return [answer.stats for answer in answers if answer.stats is not None]
