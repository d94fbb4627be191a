"""The figures of `bench http`: what docs/measuring.md defines, as pure functions."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ops.harness.chat_client import Reply
from ops.harness.processor_time import per_request_ms


@dataclass(frozen=True)
class Turn:
    """One server's answers to the prompts of a round, None where one failed, the wall-clock seconds
    of them all, and the processor seconds by process."""

    replies: Sequence[Reply | None]
    seconds: float
    spent: Counter[str] = field(default_factory=Counter)

    @property
    def tokens(self) -> int:
        """Output tokens of all answers."""
        return sum(reply.output_tokens for reply in self.replies if reply is not None)


def summarise(replies: Sequence[Reply], seconds: float) -> dict[str, Any]:
    """The figures over all answers; `seconds` is the wall-clock time of the whole run."""
    tokens = sum(reply.output_tokens for reply in replies)
    overhead = [ms for reply in replies if (ms := overhead_ms(reply)) is not None]
    return {
        "requests": len(replies),
        "ttft_ms_p50": _median_first_text_ms(replies),
        "overhead_ms_p50": statistics.median(overhead) if overhead else None,
        "tokens_per_s": tokens / seconds,
        "requests_per_s": len(replies) / seconds,
        "methods": dict(Counter(r.headers.get("x-specadapt-method", "unknown") for r in replies)),
    }


def by_turn(conversations: Sequence[Sequence[Reply | None]], turns: int) -> list[dict[str, Any]]:
    """Return the figures of each turn, and of the last one again in a scope of its own.

    cached: the share of their prompts' tokens that replicas found in their prefix caches.
    """
    found = []
    for number in range(turns + 1):
        replies = [one[number] for one in conversations if len(one) > number]
        usages = [reply.usage for reply in replies if reply is not None]
        cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
        found.append(
            {
                "turn": str(number + 1) if number < turns else f"{turns}, nothing cached",
                "answers": len(usages),
                "ttft_ms_p50": _median_first_text_ms([one for one in replies if one is not None]),
                "cached": cached / max(1, sum(usage["prompt_tokens"] for usage in usages)),
            }
        )
    return found


def _median_first_text_ms(replies: Sequence[Reply]) -> float | None:
    first = [r.first_text_seconds * 1e3 for r in replies if r.first_text_seconds is not None]
    return statistics.median(first) if first else None


def overhead_ms(reply: Reply) -> float | None:
    """What HTTP, Ray Serve and the ingress added to one answer's first byte: time to first byte -
    the engine's own time to first token - the decision."""
    engine = reply.speculative.get("engine_first_token_ms")
    routing = reply.speculative.get("routing_ms")
    if reply.first_byte_seconds is None or engine is None or routing is None:
        return None
    return reply.first_byte_seconds * 1e3 - float(engine) - float(routing)


def against(ours: Sequence[Turn], theirs: Sequence[Turn], seed: int) -> dict[str, Any]:
    """Return another server's figures, and ours over them as `ratio`; the interval is a 95%
    percentile interval of a bootstrap over rounds. `same_answers`: share of prompts with the same
    text from both."""
    rates = [_rate([(t.tokens, t.seconds) for t in turns]) for turns in (ours, theirs)]
    first = [statistics.median(_first_text_ms(turns)) for turns in (ours, theirs)]
    drawn = [_rate_ratio(ours, theirs, rounds) for rounds in _draws(len(ours), seed)]
    pairs = [
        (a.text, b.text)
        for mine, other in zip(ours, theirs, strict=True)
        for a, b in zip(mine.replies, other.replies, strict=True)
        if a is not None and b is not None
    ]
    return {
        "tokens_per_s": rates[1],
        "ttft_ms_p50": first[1],
        "errors": sum(reply is None for turn in theirs for reply in turn.replies),
        "processor_ms": processor_ms(theirs),
        "ratio": {
            "tokens_per_s": rates[0] / rates[1],
            "tokens_per_s_ci95": _interval(drawn),
            "ttft_ms_p50": first[0] / first[1],
        },
        "same_answers": sum(a == b for a, b in pairs) / len(pairs) if pairs else None,
    }


def processor_ms(turns: Sequence[Turn]) -> dict[str, float]:
    """Milliseconds of processor time per request, by process."""
    spent = sum((turn.spent for turn in turns), Counter[str]())
    return per_request_ms(spent, sum(len(turn.replies) for turn in turns))


def _rate_ratio(ours: Sequence[Turn], theirs: Sequence[Turn], rounds: Sequence[int]) -> float:
    first, second = (
        _rate([(turns[i].tokens, turns[i].seconds) for i in rounds]) for turns in (ours, theirs)
    )
    return first / second


def _first_text_ms(turns: Sequence[Turn]) -> list[float]:
    replies = [reply for turn in turns for reply in turn.replies if reply is not None]
    return [r.first_text_seconds * 1e3 for r in replies if r.first_text_seconds is not None]


def _rate(runs: Sequence[tuple[int, float]]) -> float:
    return sum(tokens for tokens, _ in runs) / sum(seconds for _, seconds in runs)


def _draws(count: int, seed: int, resamples: int = 2000) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, count, count) for _ in range(resamples)]


def _interval(values: Sequence[float]) -> list[float]:
    return [float(bound) for bound in np.quantile(values, [0.025, 0.975])]
