"""One response's way from the stepper thread to its consumer."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from schemas import DecodeChunk, DecodeStats, FinishReason, TokenLogprobs


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
        self._chunk: DecodeChunk | None = None
        """What the consumer has not taken."""
        self._finished = False

    def push(
        self,
        text: str,
        token_ids: Sequence[int],
        drafted: Sequence[bool],
        logprobs: Sequence[TokenLogprobs] = (),
        prompt_logprobs: Sequence[TokenLogprobs] = (),
    ) -> None:
        """Add one step's tokens; called in the stepper thread. prompt_logprobs: with the first."""
        self._add(
            text=text,
            token_ids=tuple(token_ids),
            drafted=tuple(drafted),
            logprobs=tuple(logprobs),
            prompt_logprobs=tuple(prompt_logprobs),
        )

    def finish(
        self,
        reason: FinishReason,
        stats: DecodeStats | None,
        error: str | None = None,
        *,
        request_fault: bool = False,
    ) -> None:
        """End the response; called in the stepper thread. The first reason stands."""
        if not self._finished:
            self._finished = True
            told = {"error": error, "request_fault": request_fault, "stats": stats}
            self._add(text="", finish_reason=reason, **told)

    async def next(self) -> DecodeChunk:
        """Wait for tokens or the end; return everything since the last call as one chunk."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            with self._lock:
                chunk, self._chunk = self._chunk, None
            if chunk is not None:
                return chunk

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

    def _add(self, **fields: Any) -> None:
        cached = self.cached_prompt_tokens
        chunk = DecodeChunk(request_id=self.request_id, cached_prompt_tokens=cached, **fields)
        with self._lock:
            self._chunk = chunk if self._chunk is None else joined(self._chunk, chunk)
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:
            # the consumer's event loop has been closed
            self.cancelled = True


def joined(first: DecodeChunk, second: DecodeChunk) -> DecodeChunk:
    """Return two pieces of a response as one."""
    return second.model_copy(
        update={
            "text": first.text + second.text,
            "token_ids": first.token_ids + second.token_ids,
            "drafted": first.drafted + second.drafted,
            "logprobs": first.logprobs + second.logprobs,
            "prompt_logprobs": first.prompt_logprobs + second.prompt_logprobs,
        }
    )
