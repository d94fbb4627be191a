"""Batches made in a thread while the device computes."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetched(stream: Iterator[T], depth: int = 4) -> Iterator[T]:
    """Yield an endless stream's items in order while a thread makes the next `depth` ones."""
    with ThreadPoolExecutor(1) as worker:
        waiting = deque(worker.submit(next, stream) for _ in range(depth))
        while True:
            item = waiting.popleft().result()
            waiting.append(worker.submit(next, stream))
            yield item
