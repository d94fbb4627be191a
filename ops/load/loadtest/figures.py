"""What an open-loop run says of a server."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

QUANTILES = (0.5, 0.95, 0.99)
ENGINE = (
    *("method", "target_steps", "mean_batch", "routing_ms", "engine_first_token_ms"),
    *("queue_seconds", "decode_seconds", "stalled_seconds", "total_seconds"),
)
"""Statistics in the service's usage that tell where an answer's time went."""


@dataclass(frozen=True)
class Target:
    """What an answer has to keep to, in seconds; None: nothing."""

    ttft: float | None
    tpot: float | None


@dataclass(frozen=True)
class Answered:
    """One request. Seconds are the client's; those of `due` count from the run's beginning.

    ttft: from the moment the request was due to its first text. tpot: per token after the first;
    None for answers of one. error: what became of a request without an answer. prompt: its id.
    engine: what a server of ours says of the answer, see ENGINE.
    """

    due: float
    sent: float
    ttft: float | None = None
    tpot: float | None = None
    seconds: float | None = None
    tokens: int = 0
    error: str | None = None
    prompt: str = ""
    engine: dict[str, Any] = field(default_factory=dict)

    def good(self, target: Target) -> bool:
        """Whether there is an answer that keeps to the target."""
        if self.error is not None or self.ttft is None:
            return False
        soon = target.ttft is None or self.ttft <= target.ttft
        return soon and (target.tpot is None or self.tpot is None or self.tpot <= target.tpot)


def summary(answers: Sequence[Answered], seconds: float, target: Target) -> dict[str, Any]:
    """Return the figures of a run of `seconds`, as docs/measuring.md defines them."""
    done = [answer for answer in answers if answer.error is None]
    good = sum(answer.good(target) for answer in answers)
    lags = [answer.sent - answer.due for answer in answers]
    return {
        "requests": len(answers),
        "answered": len(done),
        "errors": dict(Counter(a.error for a in answers if a.error is not None).most_common()),
        "seconds": seconds,
        "offered_per_s": len(answers) / max(a.due for a in answers) if len(answers) > 1 else None,
        "answered_per_s": len(done) / seconds,
        "tokens_per_s": sum(a.tokens for a in done) / seconds,
        "goodput_per_s": good / seconds,
        "good_share": good / len(answers),
        "slo": {"ttft_s": target.ttft, "tpot_s": target.tpot},
        "ttft_s": _quantiles([a.ttft for a in done]),
        "tpot_s": _quantiles([a.tpot for a in done]),
        "latency_s": _quantiles([a.seconds for a in done]),
        "late_sends_s_max": max(lags),
        "timeline": [
            {
                "due": round(a.due, 4),
                "prompt": a.prompt,
                "ttft": a.ttft,
                "tpot": a.tpot,
                "seconds": a.seconds,
                "tokens": a.tokens,
                "error": a.error,
                **({"engine": a.engine} if a.engine else {}),
            }
            for a in answers
        ],
    }


def _quantiles(values: Sequence[float | None]) -> dict[str, float] | None:
    there = [value for value in values if value is not None]
    if not there:
        return None
    found = np.quantile(there, QUANTILES)
    named = {f"p{share * 100:g}": float(v) for share, v in zip(QUANTILES, found, strict=True)}
    return {"mean": float(np.mean(there)), **named}
