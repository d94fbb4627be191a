"""Deadlines of requests."""

from deployments.errors import ApiError, invalid

HEADER = "x-specadapt-deadline-ms"
_LONGEST_MS = 24 * 3600 * 1000


class DeadlineError(Exception):
    """The request's deadline has passed."""


def deadline_seconds(header: str | None) -> float | None:
    """Return the deadline of HEADER's value in seconds, None without a header.

    Raises ApiError 400 unless the value is a whole number of milliseconds, at most a day.
    """
    if header is None:
        return None
    text = header.strip()
    if not (
        text.isascii() and text.isdecimal() and len(text) < 12 and 1 <= int(text) <= _LONGEST_MS
    ):
        why = f"give whole milliseconds from 1 to {_LONGEST_MS}, not {text[:40]!r}"
        raise invalid(HEADER, why)
    return int(text) / 1e3


def missed(started: bool) -> ApiError:
    """Return the error for a missed deadline; `started`: part of the answer was sent."""
    where = "in the middle of the answer" if started else "before the answer began"
    return ApiError(504, f"the deadline passed {where}", code="deadline_exceeded")
