"""Concurrent calls that succeed or fail together."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Result = TypeVar("Result")


async def all_or_none(
    calls: Iterable[Awaitable[Result]], undo: Callable[[Result], Awaitable[None]]
) -> list[Result]:
    """Return the results of concurrent calls.

    If one raises or this is cancelled, the others are cancelled, finished ones are undone, and the
    first exception is raised.
    """
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        for given in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(given, BaseException):
                await undo(given)
        raise
