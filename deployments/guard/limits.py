"""How much a key and its tenant may still ask for, at this ingress."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from schemas.keys import ApiKey, KeyRing, Limits

Clock = Callable[[], float]
"""Seconds, never going back."""


@dataclass(frozen=True)
class Excess:
    """Why a request has to wait. what: the limit's field; seconds: after which it may be tried."""

    holder: str
    what: str
    limit: float
    seconds: float


class Bucket:
    """An allowance that fills at so much a minute, to a minute's worth at most. What is taken may
    exceed it: then it is filled up before anything else is given."""

    def __init__(self, per_minute: float, clock: Clock) -> None:
        self._rate, self._clock = per_minute / 60.0, clock
        self._most = per_minute
        self._level, self._at = per_minute, clock()

    def wait(self, wanted: float = 0.0) -> float:
        """Seconds until `wanted` is there, or anything at all where that is 0."""
        self._fill()
        least = min(wanted, self._most)
        if self._level >= least and self._level > 0.0:
            return 0.0
        return max(least - self._level, 1e-3) / self._rate

    def take(self, amount: float) -> None:
        """Use so much up."""
        self._fill()
        self._level -= amount

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self._most, self._level + (now - self._at) * self._rate)
        self._at = now


class Meter:
    """Counts what one holder of limits asks for."""

    def __init__(self, holder: str, limits: Limits, clock: Clock) -> None:
        self.holder, self.limits = holder, limits
        asked, spoken = limits.requests_per_minute, limits.tokens_per_minute
        self._requests = None if asked is None else Bucket(asked, clock)
        self._tokens = None if spoken is None else Bucket(spoken, clock)
        self._running = 0

    def excess(self) -> Excess | None:
        """What keeps a request from being taken now."""
        limits = self.limits
        if limits.concurrent_requests is not None and self._running >= limits.concurrent_requests:
            return Excess(self.holder, "concurrent_requests", limits.concurrent_requests, 1.0)
        for what, bucket, wanted in (
            ("requests_per_minute", self._requests, 1.0),
            ("tokens_per_minute", self._tokens, 0.0),
        ):
            if bucket is not None and (seconds := bucket.wait(wanted)) > 0.0:
                return Excess(self.holder, what, getattr(limits, what), seconds)
        return None

    def begin(self) -> None:
        """A request is taken."""
        self._running += 1
        if self._requests is not None:
            self._requests.take(1.0)

    def end(self) -> None:
        """It is over."""
        self._running -= 1

    def spend(self, tokens: int) -> None:
        """It took so many tokens more."""
        if self._tokens is not None:
            self._tokens.take(tokens)


class Meters:
    """The meters of keys and tenants; one whose limits have changed begins anew."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, Meter] = {}

    def of(self, key: ApiKey, ring: KeyRing) -> list[Meter]:
        """A key's own, and its tenant's."""
        found = [self._meter(f"key {key.name}", key.limits)]
        if key.tenant is not None:
            found.append(self._meter(f"tenant {key.tenant}", ring.tenants[key.tenant]))
        return found

    def _meter(self, holder: str, limits: Limits) -> Meter:
        meter = self._known.get(holder)
        if meter is None or meter.limits != limits:
            meter = self._known[holder] = Meter(holder, limits, self._clock)
        return meter


def worst(meters: Iterable[Meter]) -> Excess | None:
    """Of all that keeps a request from being taken, what lasts longest."""
    found = [excess for meter in meters if (excess := meter.excess()) is not None]
    return max(found, key=lambda excess: excess.seconds, default=None)


def retry_after(excess: Excess) -> int:
    """Whole seconds, at least 1."""
    return max(1, math.ceil(excess.seconds))
