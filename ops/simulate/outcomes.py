"""What became of a simulated run's requests."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ops.load.arrivals import Floats
from ops.simulate.workload import Request

REFUSED, CUT = -1, -2


@dataclass(frozen=True)
class Usage:
    """What a replica did, in seconds.

    there: from its request until its end, starting included. busy: reading or decoding. decoding:
    in decode steps. batch: `decoding`, weighted with the sequences in each step.
    """

    there: float
    busy: float
    decoding: float
    batch: float


@dataclass(frozen=True)
class Objectives:
    """What a good answer keeps to, in seconds; None: nothing."""

    ttft: float | None = None
    tpot: float | None = None
    latency: float | None = None


@dataclass
class Outcomes:
    """By request [n]: when it arrived, was admitted, had its first token and its last; which method
    answered (index; REFUSED: none, every line was full or two replicas died of it; CUT: its client
    left or its deadline passed), its tokens, the
    replicas that died under it, and its turn in its conversation. NaN where nothing came of it;
    turns after a refused one never arrive."""

    arrived: Floats
    admitted: Floats
    first: Floats
    last: Floats
    method: NDArray[np.int64]
    tokens: NDArray[np.int64]
    failures: NDArray[np.int64]
    turn: NDArray[np.int64]
    usage: list[Usage]

    @classmethod
    def of(cls, conversations: int, turns: int) -> Self:
        """Before anything has become of them; the turns of a conversation follow one another."""
        n = conversations * turns
        arrived, admitted, first, last = (np.full(n, np.nan) for _ in range(4))
        method, tokens, failures = np.full(n, REFUSED), np.zeros(n, int), np.zeros(n, int)
        turn = np.arange(n) % turns
        return cls(arrived, admitted, first, last, method, tokens, failures, turn, [])

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """Of services side by side."""
        arrays = [f.name for f in fields(cls) if f.name != "usage"]
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in arrays
        }
        return cls(**joined, usage=[usage for part in parts for usage in part.usage])

    def ended(self, request: Request, now: float) -> None:
        """It has its last token."""
        i = request.number
        self.admitted[i], self.first[i], self.last[i] = request.admitted, request.first, now
        self.method[i] = request.method
        self.tokens[i] = request.said + request.path.tokens
        self.failures[i] = request.failures

    def cut(self, request: Request) -> None:
        """Record that its client has left, or that its deadline has passed."""
        self.method[request.number] = CUT

    def figures(self, methods: Sequence[str], objectives: Objectives) -> dict[str, Any]:
        """The figures of docs/measuring.md; seconds are from arrival, those of the run from the
        first arrival to the last token."""
        there, cut = self.method >= 0, int((self.method == CUT).sum())
        requests, answered = int((~np.isnan(self.arrived)).sum()), int(there.sum())
        found: dict[str, Any] = {"requests": requests, "answered": answered, "cut_off": cut}
        if not answered:
            return found
        latency = (self.last - self.arrived)[there]
        ttft = (self.first - self.arrived)[there]
        tokens = self.tokens[there]
        several = tokens > 1
        tpot = (self.last - self.first)[there][several] / (tokens[several] - 1)
        good = np.ones(answered, bool)
        if objectives.ttft is not None:
            good &= ttft <= objectives.ttft
        if objectives.tpot is not None:
            good[several] &= tpot <= objectives.tpot
        if objectives.latency is not None:
            good &= latency <= objectives.latency
        seconds = float(self.last[there].max() - np.nanmin(self.arrived))
        turns = [ttft[self.turn[there] == turn] for turn in range(self.turn.max() + 1)]
        shares = np.bincount(self.method[there], minlength=len(methods)) / answered
        there_seconds = sum(usage.there for usage in self.usage)
        decoding = sum(usage.decoding for usage in self.usage)
        return {
            **found,
            "refused": requests - answered - cut,
            "retried": int((self.failures > 0).sum()),
            "seconds": seconds,
            "tokens_per_s": float(tokens.sum()) / seconds,
            "latency_mean_s": float(latency.mean()),
            "latency_p95_s": float(np.percentile(latency, 95)),
            "ttft_mean_s": float(ttft.mean()),
            "ttft_p95_s": float(np.percentile(ttft, 95)),
            "ttft_by_turn_s": [float(one.mean()) for one in turns if len(one)],
            "tpot_mean_s": float(tpot.mean()) if len(tpot) else None,
            "tpot_p95_s": float(np.percentile(tpot, 95)) if len(tpot) else None,
            "queue_mean_s": float((self.admitted - self.arrived)[there].mean()),
            "goodput_per_s": float(good.sum()) / seconds,
            "good_share": float(good.sum()) / requests,
            "replica_seconds": there_seconds,
            "busy_share": sum(usage.busy for usage in self.usage) / there_seconds,
            "mean_batch": sum(usage.batch for usage in self.usage) / decoding if decoding else None,
            "shares": {m: float(s) for m, s in zip(methods, shares, strict=True) if s},
        }
