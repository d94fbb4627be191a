"""Grading of word problems by their final number, with intervals of the accuracy."""

import math
import re
from decimal import Decimal

MARK = "####"
"""GSM8K's, before the final number of a solution (Cobbe et al. 2021, arXiv 2110.14168)."""
NUMBER = re.compile(r"(?:(?<![\w)])-)?\d[\d,]*(?:\.\d+)?")
"""With thousands separators; a minus after a digit, letter or bracket is an operator."""
NORMAL_95 = 1.959964


def final_number(text: str) -> Decimal | None:
    """Return the number after the last `####`, else the last number of the text, else None."""
    _, marked, after = text.rpartition(MARK)
    found = NUMBER.search(after) if marked else None
    if found is None:
        *_, found = [None, *NUMBER.finditer(text)]
    return None if found is None else Decimal(found.group().replace(",", ""))


def reference_number(response: str | None) -> Decimal | None:
    """Return the number that a response marks as its result, or None."""
    marked = response is not None and MARK in response
    return final_number(response) if response is not None and marked else None


def wilson(hits: int, of: int) -> tuple[float, float]:
    """Return the 95% score interval of a share (Wilson 1927). Raises ValueError if `of` is 0."""
    if not 0 <= hits <= of or of == 0:
        raise ValueError(f"{hits} of {of} is no share")
    share, z2 = hits / of, NORMAL_95**2
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = NORMAL_95 / (1 + z2 / of) * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)
