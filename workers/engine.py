"""What every engine offers, whichever library decodes."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from schemas import DecodeChunk, DecodeRequest, LoadReport, MethodSpec


class EngineRefusedError(ValueError):
    """The request cannot be served by this engine; the message names the field and the fix."""


class EngineBusyError(RuntimeError):
    """The engine's waiting line is full; the request may be tried elsewhere or later."""


class Engine(Protocol):
    """One target model and a portfolio of methods that share it."""

    @property
    def methods(self) -> Sequence[MethodSpec]:
        """The methods this engine was loaded with."""
        ...

    def generate(self, request: DecodeRequest) -> AsyncIterator[DecodeChunk]:
        """Stream an answer; closing the iterator cancels the work before the next step.

        Raises EngineRefusedError (unknown method, prompt too long) and EngineBusyError at the
        first iteration; a failure afterwards is a last chunk with finish_reason "error".
        """
        ...

    def load(self) -> LoadReport:
        """The present load; safe to call from any thread, never blocks on a step."""
        ...

    def close(self) -> None:
        """Stop the stepper thread and free the models; running requests end as cancelled."""
        ...
