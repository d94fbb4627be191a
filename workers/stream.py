"""From the stepper thread to whoever awaits an answer."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from schemas import DecodeChunk, DecodeStats, FinishReason, TokenLogprobs


@dataclass(slots=True)
class _Piece:
    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    drafted: list[bool] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)


class Stream:
    """One answer's mailbox; a consumer that is behind gets several steps in one chunk."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.cancelled = False
        """Set by the consumer; the stepper looks before each step."""
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
    ) -> None:
        """Add one step's tokens (from the stepper thread)."""
        with self._lock:
            self._piece.text.append(text)
            self._piece.token_ids.extend(token_ids)
            self._piece.drafted.extend(drafted)
            self._piece.logprobs.extend(logprobs)
        self._wake()

    def finish(
        self,
        reason: FinishReason,
        stats: DecodeStats | None,
        error: str | None = None,
        *,
        request_fault: bool = False,
    ) -> None:
        """End the answer (from the stepper thread); the first reason stands."""
        with self._lock:
            if self._finish is None:
                self._finish, self._stats, self._error = reason, stats, error
                self._request_fault = request_fault
        self._wake()

    async def next(self) -> DecodeChunk:
        """Everything since the last call as one chunk; waits until there is something."""
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
                finish_reason=self._finish,
                error=self._error,
                request_fault=self._request_fault,
                stats=self._stats,
            )

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:
            # the consumer's event loop has been closed: nobody will read this answer
            self.cancelled = True
