"""Limits of keys and tenants at one ingress."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from deployments.errors import ApiError
from schemas.keys import ApiKey, KeyRing, Limits

Clock = Callable[[], float]
"""Seconds, never going back."""


@dataclass(frozen=True)
class Excess:
    """Say why a request has to wait: the limit's field (`what`), its value, and the seconds to
    wait."""

    holder: str
    what: str
    limit: float
    seconds: float


class Bucket:
    """Refill an allowance at a steady rate, up to one minute's worth.

    Taking may exceed what is there: the debt is then refilled before anything else is given.
    """

    def __init__(self, per_minute: float, clock: Clock) -> None:
        self._rate, self._clock = per_minute / 60.0, clock
        self._most = per_minute
        self._level, self._at = per_minute, clock()

    def wait(self, wanted: float = 0.0) -> float:
        """Return the seconds until `wanted` is there; 0 waits for any amount."""
        self._fill()
        least = min(wanted, self._most)
        if self._level >= least and self._level > 0.0:
            return 0.0
        return max(least - self._level, 1e-3) / self._rate

    def take(self, amount: float) -> None:
        """Take an amount, or give it back if it is negative."""
        self._fill()
        self._level -= amount

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self._most, self._level + (now - self._at) * self._rate)
        self._at = now


class Meter:
    """Count the requests and tokens of one key or tenant."""

    def __init__(self, holder: str, limits: Limits, clock: Clock) -> None:
        self.holder, self.limits = holder, limits
        asked, spoken = limits.requests_per_minute, limits.tokens_per_minute
        self._requests = None if asked is None else Bucket(asked, clock)
        self._tokens = None if spoken is None else Bucket(spoken, clock)
        self._running = 0

    def excess(self, requests: int = 1, at_once: int = 1, tokens: int = 0) -> Excess | None:
        """Return the limit that does not allow these requests or tokens now, None if all do.

        requests: how many more, `at_once` of them side by side. tokens: how many are about to be
        read.
        """
        limits = self.limits
        most = math.inf if limits.concurrent_requests is None else limits.concurrent_requests
        if at_once and self._running + at_once > most:
            return Excess(self.holder, "concurrent_requests", most, 1.0)
        for what, bucket, wanted in (
            ("requests_per_minute", self._requests if requests else None, requests),
            ("tokens_per_minute", self._tokens, tokens),
        ):
            if bucket is not None and (seconds := bucket.wait(wanted)) > 0.0:
                return Excess(self.holder, what, getattr(limits, what), seconds)
        return None

    def never(self, requests: int, at_once: int) -> Excess | None:
        """Return the limit that a batch of this size exceeds however long it waits."""
        wanted = {"requests_per_minute": requests, "concurrent_requests": at_once}
        for what, count in wanted.items():
            limit = getattr(self.limits, what)
            if limit is not None and count > max(1.0, limit):
                return Excess(self.holder, what, limit, math.inf)
        return None

    def begin(self, requests: int = 1, at_once: int = 1) -> None:
        """Take requests, of them `at_once` at the same time."""
        self._running += at_once
        if self._requests is not None:
            self._requests.take(requests)

    def end(self, at_once: int = 1) -> None:
        """Count so many requests as over."""
        self._running -= at_once

    def spend(self, tokens: int) -> None:
        """Take so many tokens; fewer than 0 are given back."""
        if self._tokens is not None:
            self._tokens.take(tokens)


class Meters:
    """Keep the meters of keys and tenants. A meter starts anew when its limits change."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, Meter] = {}

    def of(self, key: ApiKey, ring: KeyRing) -> list[Meter]:
        """Return the meters of a key and of its tenant."""
        found = [self._meter(f"key {key.name}", key.limits)]
        if key.tenant is not None:
            found.append(self._meter(f"tenant {key.tenant}", ring.tenants[key.tenant]))
        return found

    def _meter(self, holder: str, limits: Limits) -> Meter:
        meter = self._known.get(holder)
        if meter is None or meter.limits != limits:
            meter = self._known[holder] = Meter(holder, limits, self._clock)
        return meter


def worst(found: Iterable[Excess | None]) -> Excess | None:
    """Return the excess with the longest wait."""
    return max(filter(None, found), key=lambda excess: excess.seconds, default=None)


def check(found: Iterable[Excess | None]) -> None:
    """Raise ApiError 429 if a limit does not allow the request now."""
    excess = worst(found)
    if excess is not None:
        raise ApiError(
            429,
            f"{excess.holder}: {excess.what} is {excess.limit:g}",
            code="rate_limit_exceeded",
            retry_after=retry_after(excess),
        )


def retry_after(excess: Excess) -> int:
    """Return the wait in whole seconds, at least 1."""
    return max(1, math.ceil(excess.seconds))
