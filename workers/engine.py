"""The protocol of every engine."""

from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from schemas import DecodeChunk, DecodeRequest, LoadReport, MethodSpec


class EngineRefusedError(ValueError):
    """The request cannot be served by this engine; the message names the field and the fix."""


class EngineBusyError(RuntimeError):
    """The engine's waiting line is full; the request may be tried elsewhere or later."""


class RequestFaultError(RuntimeError):
    """A response cannot continue because of its request; the engine is healthy, and no other
    engine could continue. The message names the field."""


class Engine(Protocol):
    """One target model and a portfolio of methods that share it."""

    @property
    def methods(self) -> Sequence[MethodSpec]:
        """The methods this engine was loaded with."""
        ...

    def generate(self, request: DecodeRequest) -> AsyncIterator[DecodeChunk]:
        """Stream a response; closing the iterator cancels the work before the next step.

        Raises EngineRefusedError (unknown method, prompt too long) and EngineBusyError at the
        first iteration; a failure afterwards is a last chunk with finish_reason "error", and with
        `request_fault` if the request caused it.
        """
        ...

    def load(self) -> LoadReport:
        """Return the present load. Safe in any thread; never waits for a step."""
        ...

    def close(self) -> None:
        """Stop the stepper thread and free the models; running requests end as cancelled."""
        ...


@runtime_checkable
class HeadExchanger(Protocol):
    """An engine that exchanges the heads of its drafters while it decodes."""

    @property
    def exchangeable(self) -> frozenset[str]:
        """The bundle's parts whose heads can be exchanged."""
        ...

    def exchange(self, part: str, version: int, folder: Path | None, share: float) -> None:
        """Activate a version of a part's head, or let it draft for a share of new requests.

        Blocks while the head is loaded; call it in a thread, one call at a time. Our engine divides
        requests by a hash of their ids, and running ones keep their version. vLLM's drafts with one
        version at a time, a canary in turns, and running requests go on with the new one; their
        statistics name no version. At share 1 the version replaces the others, a canary too.

        folder: of the head, in the layout of the part; None stands for the bundle's own, which is
        version 0. share: above 0, at most 1. Raises BundleError for a head that does not fit or
        holds NaN; then nothing changes.
        """
        ...


@runtime_checkable
class Learning(Protocol):
    """An engine whose adaptive methods can store what they learn."""

    def remember(self, folder: Path) -> None:
        """Begin with half of what was learned on such a machine before, and store what is learned
        in `folder`. Call it once, in a thread, before the first request."""
        ...


def check_method(request: DecodeRequest, methods: Iterable[str]) -> None:
    """Raise EngineRefusedError for a method that the engine was not loaded with."""
    if request.method not in methods:
        raise EngineRefusedError(
            f"method: {request.method!r} is not served here, only {', '.join(methods)}"
        )


def check_tokens(request: DecodeRequest, context: int, vocab: int) -> None:
    """Raise EngineRefusedError for a request that does not fit into a context of so many tokens, or
    whose prompt has tokens outside the vocabulary."""
    prompt, wanted = len(request.prompt_token_ids), request.sampling.max_tokens
    if prompt >= context:
        raise EngineRefusedError(
            f"prompt: its {prompt} tokens leave no room in the context of {context}: shorten it"
        )
    if prompt + wanted > context:
        raise EngineRefusedError(
            f"max_tokens: {prompt} prompt tokens and {wanted} more exceed the context of "
            f"{context}: ask for at most {context - prompt}"
        )
    low, high = min(request.known_token_ids), max(request.known_token_ids)
    if low < 0 or high >= vocab:
        raise EngineRefusedError(
            f"prompt_token_ids: {low if low < 0 else high} is outside the vocabulary of {vocab} "
            "tokens: use the bundle's tokenizer"
        )
