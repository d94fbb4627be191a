"""Deadlines: how clients state them, and what waits no longer than they allow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deployments.errors import ApiError

HEADER = "x-specadapt-deadline-ms"
_LONGEST_MS = 24 * 3600 * 1000


class DeadlineError(Exception):
    """The request's deadline has passed."""


def deadline_seconds(header: str | None) -> float | None:
    """The seconds that HEADER's value gives the answer; None where there is none.

    Raises ApiError 400 for anything but whole milliseconds of at most a day.
    """
    if header is None:
        return None
    text = header.strip()
    if not (
        text.isascii() and text.isdecimal() and len(text) < 12 and 1 <= int(text) <= _LONGEST_MS
    ):
        raise ApiError(
            400,
            f"{HEADER}: give whole milliseconds from 1 to {_LONGEST_MS}, not {text[:40]!r}",
            param=HEADER,
            code="invalid_value",
        )
    return int(text) / 1e3


def missed(started: bool) -> ApiError:
    """The deadline passed; `started`: part of the answer is out."""
    where = "in the middle of the answer" if started else "before the answer began"
    return ApiError(504, f"the deadline passed {where}", code="deadline_exceeded")


@asynccontextmanager
async def within(deadline: float | None) -> AsyncIterator[None]:
    """Cancels the block at `deadline` (the event loop's time) and raises DeadlineError."""
    try:
        async with asyncio.timeout_at(deadline) as limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise DeadlineError("the deadline passed") from error
        raise
