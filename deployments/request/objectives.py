"""What a request's headers say about how fast its answer has to be."""

import re
from collections.abc import Mapping

from deployments.errors import invalid
from router.wishes import Slo

FIRST, TOKEN = "x-slo-ttft-ms", "x-slo-tpot-ms"
"""Milliseconds to the first token, and between later ones; llm-d's names."""
LONGEST_MS = 24 * 3600 * 1000
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


def slo_of(headers: Mapping[str, str]) -> Slo:
    """Return the objectives of a request. Raises ApiError 400 naming a header that is no number of
    milliseconds above 0, at most a day."""
    return Slo(_seconds(headers, FIRST), _seconds(headers, TOKEN))


def _seconds(headers: Mapping[str, str], name: str) -> float | None:
    given = headers.get(name)
    if given is None:
        return None
    text = given.strip()
    if not (_NUMBER.fullmatch(text) and 0.0 < float(text) <= LONGEST_MS):
        why = f"give milliseconds above 0, up to {LONGEST_MS}, not {text[:40]!r}"
        raise invalid(name, why)
    return float(text) / 1e3
