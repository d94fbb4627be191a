"""Waiting for the chunks of an answer until its deadline, or until its replica is lost."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Self

from deployments.request.deadline import DeadlineError
from schemas import DecodeChunk

WATCH_SECONDS = 0.5


class Watch:
    """Wait for one answer's chunks. A deadline or a lost replica ends the wait.

    Timers run for the whole answer, because a timer and a task for every chunk would cost more than
    the chunk.
    """

    def __init__(self, deadline: float | None, lost: Callable[[], Exception | None]) -> None:
        """deadline: on the event loop's clock. lost: says why no further chunk will come, None
        while one may come; called every WATCH_SECONDS."""
        self._loop = asyncio.get_running_loop()
        self._deadline, self._lost = deadline, lost
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._waiting: asyncio.Timeout | None = None
        self._over: Exception | None = None

    def __enter__(self) -> Self:
        if self._deadline is not None:
            passed = DeadlineError("the deadline passed")
            self._timers["deadline"] = self._loop.call_at(self._deadline, self._end, passed)
        self._look_later()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for timer in self._timers.values():
            timer.cancel()

    async def next(self, chunks: AsyncGenerator[DecodeChunk, None]) -> DecodeChunk | None:
        """Return the next chunk, None after the last one.

        Raises DeadlineError at the deadline, and what `lost` returns.
        """
        if self._over is not None:
            raise self._over
        try:
            async with asyncio.timeout(None) as self._waiting:
                return await anext(chunks, None)
        except Exception as error:
            if self._over is None:
                raise
            raise self._over from error
        finally:
            self._waiting = None

    def _look_later(self) -> None:
        self._timers["look"] = self._loop.call_later(WATCH_SECONDS, self._look)

    def _look(self) -> None:
        why = None if self._waiting is None else self._lost()
        if why is None:
            self._look_later()
        else:
            self._end(why)

    def _end(self, why: Exception) -> None:
        if self._over is not None:
            return
        self._over = why
        if self._waiting is not None:
            self._waiting.reschedule(self._loop.time())
