"""What a request's headers say about how fast its response has to be."""

import re
from collections.abc import Mapping

from deployments.errors import invalid
from router.constraints import Slo

DEADLINE = "x-specadapt-deadline-ms"
FIRST, TOKEN = "x-slo-ttft-ms", "x-slo-tpot-ms"
"""Milliseconds to the first token, and between later ones; llm-d's names."""
LONGEST_MS = 24 * 3600 * 1000
_WHOLE = re.compile(r"\d{1,11}", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


def deadline_of(headers: Mapping[str, str]) -> float | None:
    """Return the deadline of a request in seconds, None without one.

    Raises ApiError 400 unless it is a whole number of milliseconds, at most a day.
    """
    return _seconds(headers, DEADLINE, _WHOLE, f"whole milliseconds from 1 to {LONGEST_MS}")


def slo_of(headers: Mapping[str, str]) -> Slo:
    """Return the objectives of a request. Raises ApiError 400 naming a header that is no number of
    milliseconds above 0, at most a day."""
    form = f"milliseconds above 0, up to {LONGEST_MS}"
    return Slo(*(_seconds(headers, name, _NUMBER, form) for name in (FIRST, TOKEN)))


def _seconds(
    headers: Mapping[str, str], name: str, number: re.Pattern[str], form: str
) -> float | None:
    given = headers.get(name)
    if given is None:
        return None
    text = given.strip()
    if not (number.fullmatch(text) and 0.0 < float(text) <= LONGEST_MS):
        raise invalid(name, f"give {form}, not {text[:40]!r}")
    return float(text) / 1e3
