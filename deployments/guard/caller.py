"""Who asks, for the time of one request."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from deployments.guard.limits import Meter
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
        self.tokens = 0
        self._meters = meters

    def spend(self, tokens: int) -> None:
        """Tokens were read or said for this request."""
        self.tokens += tokens
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
            meter.end()
