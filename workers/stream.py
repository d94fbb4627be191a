"""One response's way from the stepper thread to its consumer."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from schemas import DecodeChunk, DecodeStats, FinishReason, TokenLogprobs


@dataclass(slots=True)
class _Piece:
    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    drafted: list[bool] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: Sequence[TokenLogprobs] = ()


class Stream:
    """One response's mailbox; a slow consumer gets several steps in one chunk."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.cached_prompt_tokens = 0
        """Set by the stepper before the first token."""
        self.cancelled = False
        """Set by the consumer; the stepper checks it before each step."""
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._lock = threading.Lock()
        self._piece = _Piece()
        self._finish: FinishReason | None = None
        self._error: str | None = None
        self._request_fault = False
        self._stats: DecodeStats | None = None

    def push(
        self,
        text: str,
        token_ids: list[int],
        drafted: list[bool],
        logprobs: Sequence[TokenLogprobs] = (),
        prompt_logprobs: Sequence[TokenLogprobs] = (),
    ) -> None:
        """Add one step's tokens; called in the stepper thread. prompt_logprobs: with the first."""
        with self._lock:
            self._piece.text.append(text)
            self._piece.token_ids.extend(token_ids)
            self._piece.drafted.extend(drafted)
            self._piece.logprobs.extend(logprobs)
            self._piece.prompt_logprobs = prompt_logprobs or self._piece.prompt_logprobs
        self._wake()

    def finish(
        self,
        reason: FinishReason,
        stats: DecodeStats | None,
        error: str | None = None,
        *,
        request_fault: bool = False,
    ) -> None:
        """End the response; called in the stepper thread. The first reason stands."""
        with self._lock:
            if self._finish is None:
                self._finish, self._stats, self._error = reason, stats, error
                self._request_fault = request_fault
        self._wake()

    async def next(self) -> DecodeChunk:
        """Wait for tokens or the end; return everything since the last call as one chunk."""
        await self._ready.wait()
        self._ready.clear()
        with self._lock:
            piece, self._piece = self._piece, _Piece()
            return DecodeChunk(
                request_id=self.request_id,
                text="".join(piece.text),
                token_ids=tuple(piece.token_ids),
                drafted=tuple(piece.drafted),
                logprobs=tuple(piece.logprobs),
                prompt_logprobs=tuple(piece.prompt_logprobs),
                cached_prompt_tokens=self.cached_prompt_tokens,
                finish_reason=self._finish,
                error=self._error,
                request_fault=self._request_fault,
                stats=self._stats,
            )

    async def chunks(
        self, cancelled: Callable[[], None] = lambda: None
    ) -> AsyncGenerator[DecodeChunk, None]:
        """Yield chunks up to the last one; then, or when the iterator is closed, end the work and
        call `cancelled`."""
        try:
            while True:
                chunk = await self.next()
                yield chunk
                if chunk.finish_reason is not None:
                    return
        finally:
            self.cancelled = True
            cancelled()

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:
            # the consumer's event loop has been closed
            self.cancelled = True
