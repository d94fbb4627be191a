"""The caller of a request: its key's and its tenant's limits, and what it has used."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from deployments.errors import ApiError
from schemas.keys import ApiKey, KeyRing, Limits, Priority

WORK_TOKENS = 1000
"""Tokens that a second of a core counts as where no response's tokens count: reading bodies,
tokenising, checking grammars."""

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

    def spend(self, tokens: float) -> None:
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


def check(found: Iterable[Excess | None]) -> None:
    """Raise ApiError 429, with the longest wait, if a limit does not allow the request now."""
    excess = max(filter(None, found), key=lambda each: each.seconds, default=None)
    if excess is not None:
        raise ApiError(
            429,
            f"{excess.holder}: {excess.what} is {excess.limit:g}",
            code="rate_limit_exceeded",
            retry_after=max(1, math.ceil(excess.seconds)),
        )


class Caller:
    """Hold a request's key and count what the request uses. teaches: as the key's."""

    def __init__(
        self,
        name: str | None = None,
        tenant: str | None = None,
        priority: Priority = "high",
        meters: Sequence[Meter] = (),
        scope: str = "",
        teaches: bool | None = True,
    ) -> None:
        self.name, self.tenant, self.priority = name, tenant, priority
        self.scope, self.teaches = scope, teaches
        self.prompt_tokens = self.cached_tokens = self.output_tokens = 0
        self._meters, self._at_once, self._work = meters, 1, 0.0

    def batch(self, size: int, field: str, at_once: bool = True) -> None:
        """Count the request as `size` requests before any work starts; `at_once`: they run side by
        side.

        Raises ApiError: 400 naming the field if a limit never allows that many, 429 if the limits
        do not allow it now.
        """
        for meter in self._meters:
            excess = meter.never(size, size if at_once else 1)
            if excess is not None:
                raise ApiError(
                    400,
                    f"{field}: this counts as {size} requests, but {excess.what} of "
                    f"{excess.holder} is {excess.limit:g}: send fewer in a request",
                    param=field,
                    code="batch_too_large",
                )
        more, running = size - 1, size - 1 if at_once else 0
        check(meter.excess(more, running) for meter in self._meters)
        for meter in self._meters:
            meter.begin(more, running)
        self._at_once += running

    @property
    def owner(self) -> str:
        """Return whose answers its requests get: as in `Sample`."""
        if self.tenant is not None:
            return f"tenant {self.tenant}"
        return "" if self.name is None else f"key {self.name}"

    def scope_of(self, own: str) -> str:
        """Return a request's scope. own: within the caller's."""
        return f"{self.scope} {own}".strip()

    @property
    def tokens(self) -> int:
        """Return the tokens that count towards limits."""
        return self.prompt_tokens + self.output_tokens

    def read(self, tokens: int) -> None:
        """Count the prompts' tokens before any work starts. Raises ApiError 429 if the limits do
        not allow them now."""
        self._charge(-self._work)  # which must not refuse the request itself
        try:
            check(meter.excess(0, 0, tokens) for meter in self._meters)
        finally:
            self._charge(self._work)
        self.prompt_tokens += tokens
        self._charge(tokens)

    def unread(self, tokens: int) -> None:
        """Give back the tokens of prompts that were not answered."""
        self.prompt_tokens -= tokens
        self._charge(-tokens)

    def found(self, tokens: int) -> None:
        """Count the prompts' tokens that were in a prefix cache."""
        self.cached_tokens += tokens

    def spend(self, tokens: int) -> None:
        """Count tokens of the responses."""
        self.output_tokens += tokens
        self._charge(tokens)

    def worked(self, seconds: float) -> None:
        """Count work on the request that is no response, whatever becomes of the request. Limits
        that it exceeds refuse the next ones."""
        self._work += seconds * WORK_TOKENS
        self._charge(seconds * WORK_TOKENS)

    def _charge(self, tokens: float) -> None:
        for meter in self._meters:
            meter.spend(tokens)

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Count the request as running during the block."""
        for meter in self._meters:
            meter.begin()
        try:
            yield self
        finally:
            for meter in self._meters:
                meter.end(self._at_once)
