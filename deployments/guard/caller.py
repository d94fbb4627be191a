"""Who asks, for the time of one request."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from deployments.errors import ApiError
from deployments.guard.limits import Meter, check
from schemas.keys import Priority


class Caller:
    """A request's key and what it has used so far; entered for as long as the request lasts."""

    def __init__(
        self,
        name: str | None = None,
        tenant: str | None = None,
        priority: Priority = "high",
        meters: Sequence[Meter] = (),
        scope: str = "",
        teaches: bool = True,
    ) -> None:
        self.name, self.tenant, self.priority = name, tenant, priority
        self.scope, self.teaches = scope, teaches
        self.prompt_tokens = self.cached_tokens = self.output_tokens = 0
        self._meters, self._at_once = meters, 1

    def batch(self, size: int, field: str, at_once: bool = True) -> None:
        """Count the request as `size` requests, worked on `at_once` or one after another, before
        anything is done for it.

        Raises ApiError: 400 naming the field where that is more than a limit ever allows, 429
        where it is more than the limits allow now.
        """
        for meter in self._meters:
            excess = meter.never(size, size if at_once else 1)
            if excess is not None:
                raise ApiError(
                    400,
                    f"{field}: this counts as {size} requests, and of {excess.holder} "
                    f"{excess.what} is {excess.limit:g}: send fewer in a request",
                    param=field,
                    code="batch_too_large",
                )
        more, running = size - 1, size - 1 if at_once else 0
        check(meter.excess(more, running) for meter in self._meters)
        for meter in self._meters:
            meter.begin(more, running)
        self._at_once += running

    @property
    def tokens(self) -> int:
        """All that count towards limits."""
        return self.prompt_tokens + self.output_tokens

    def read(self, tokens: int) -> None:
        """Count the prompts' tokens before anything is done with them. Raises ApiError 429 where
        they are more than the limits allow now."""
        check(meter.excess(0, 0, tokens) for meter in self._meters)
        self.prompt_tokens += tokens
        self._charge(tokens)

    def unread(self, tokens: int) -> None:
        """Give back the tokens of prompts that nothing was done with."""
        self.prompt_tokens -= tokens
        self._charge(-tokens)

    def found(self, tokens: int) -> None:
        """Count the prompts' tokens that were in a prefix cache."""
        self.cached_tokens += tokens

    def spend(self, tokens: int) -> None:
        """Count tokens of the answers."""
        self.output_tokens += tokens
        self._charge(tokens)

    def _charge(self, tokens: int) -> None:
        for meter in self._meters:
            meter.spend(tokens)

    def __enter__(self) -> Self:
        for meter in self._meters:
            meter.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for meter in self._meters:
            meter.end(self._at_once)
