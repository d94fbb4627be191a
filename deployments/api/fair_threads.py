"""Threads that serve callers in turn, by the time that each has taken."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from deployments.errors import overloaded

_CLASS_BITS = 3
_SMALLEST_BITS = 12
"""Sizes up to 4 KiB share a queue, those up to 32 KiB, and so on."""

Tool = TypeVar("Tool")
Result = TypeVar("Result")
Spent = Callable[[float], None]
_Key = tuple[str, int]
_Waiting = tuple[asyncio.Future[Any], Callable[[Any], Any], Spent | None]


@dataclass
class _Queue:
    """Hold one caller's calls of about one size. seconds: taken, as start-time fair queueing counts
    them."""

    seconds: float
    waiting: deque[_Waiting] = field(default_factory=deque)
    running: int = 0


class FairThreads(Generic[Tool]):
    """Run blocking calls on a few threads, each with a tool of its own. Use it from one event loop.

    Each caller has a queue for each class of sizes, so that small calls do not wait for large ones
    where callers have no keys. The queue that has taken the least time is next. One queue never
    occupies all of several threads.
    """

    def __init__(self, tools: Sequence[Tool], name: str, waiting: float = math.inf) -> None:
        """tools: one for each thread. waiting: calls that may wait in one queue."""
        self._pool = ThreadPoolExecutor(len(tools), thread_name_prefix=name)
        self._idle, self._most = list(tools), waiting
        self._share = max(1, len(tools) - 1)
        self._queues: dict[_Key, _Queue] = {}
        self._now = 0.0

    async def run(
        self, owner: str, size: int, call: Callable[[Tool], Result], spent: Spent | None = None
    ) -> Result:
        """Return the result of a call with one of the tools.

        owner: whose turn it takes. size: bytes that the call reads. spent: is told the seconds that
        the call took. Raises ApiError 429 if too many calls of the queue wait, and what the call
        raises.
        """
        large = max(0, size.bit_length() - _SMALLEST_BITS + _CLASS_BITS - 1)
        key = (owner, large // _CLASS_BITS)
        queue = self._queues.setdefault(key, _Queue(self._now))
        if len(queue.waiting) >= self._most:
            raise overloaded(f"{len(queue.waiting)} of your requests wait here; try again shortly")
        queue.seconds = max(queue.seconds, self._now)
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        queue.waiting.append((result, call, spent))
        self._start()
        return await result

    def _start(self) -> None:
        """Start calls while there is an idle thread and a queue that may have one."""
        while self._idle:
            ready = [q for q in self._queues.values() if q.waiting and q.running < self._share]
            if not ready:
                break
            queue = min(ready, key=lambda each: each.seconds)
            waiting = queue.waiting.popleft()
            if not waiting[0].done():  # else nobody waits for it any more
                self._run(queue, *waiting)
        # An idle queue that is behind the others would begin where they are.
        self._queues = {
            key: queue
            for key, queue in self._queues.items()
            if queue.waiting or queue.running or queue.seconds > self._now
        }

    def _run(
        self,
        queue: _Queue,
        result: asyncio.Future[Any],
        call: Callable[[Tool], Any],
        spent: Spent | None,
    ) -> None:
        self._now = max(self._now, queue.seconds)
        tool = self._idle.pop()
        queue.running += 1
        loop, began = asyncio.get_running_loop(), time.perf_counter()

        def ended(done: asyncio.Future[Any]) -> None:
            self._idle.append(tool)
            queue.running -= 1
            seconds = time.perf_counter() - began
            queue.seconds += seconds
            if spent is not None:
                spent(seconds)
            error = done.exception()
            if result.done():
                pass
            elif error is None:
                result.set_result(done.result())
            else:
                result.set_exception(error)
            self._start()

        loop.run_in_executor(self._pool, call, tool).add_done_callback(ended)
