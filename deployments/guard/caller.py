"""The caller of one request: its key, its limits and what it has used."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from deployments.errors import ApiError
from deployments.guard.limits import Meter, check
from schemas.keys import Priority

WORK_TOKENS = 1000
"""Tokens that a second of a core counts as where no answer's tokens count: reading bodies,
tokenising, checking grammars."""


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
        self._meters, self._at_once = meters, 1

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
        check(meter.excess(0, 0, tokens) for meter in self._meters)
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
        """Count tokens of the answers."""
        self.output_tokens += tokens
        self._charge(tokens)

    def worked(self, seconds: float) -> None:
        """Count work on the request that is no answer, whatever becomes of the request. Limits
        that it exceeds refuse the next ones."""
        self._charge(int(seconds * WORK_TOKENS))

    def _charge(self, tokens: int) -> None:
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
