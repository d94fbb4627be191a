"""Answers to word problems: their final number, and how sure a share of right ones is."""

import math
import re
from decimal import Decimal

MARK = "####"
"""GSM8K's, before the final number of a solution (Cobbe et al. 2021, arXiv 2110.14168)."""
NUMBER = re.compile(r"(?:(?<![\w)])-)?\d[\d,]*(?:\.\d+)?")
"""With thousands separators; a minus after a digit, letter or bracket is an operator."""
NORMAL_95 = 1.959964


def final_number(text: str) -> Decimal | None:
    """The number after the last `####`, else the last one of the text; None without any."""
    _, marked, after = text.rpartition(MARK)
    found = NUMBER.search(after) if marked else None
    if found is None:
        *_, found = [None, *NUMBER.finditer(text)]
    return None if found is None else Decimal(found.group().replace(",", ""))


def reference_number(response: str | None) -> Decimal | None:
    """What a response says is right; None where it marks no final number."""
    marked = response is not None and MARK in response
    return final_number(response) if response is not None and marked else None


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95% score interval of a share (Wilson 1927); raises ValueError for a share of nothing."""
    if not 0 <= hits <= of or of == 0:
        raise ValueError(f"{hits} of {of} is no share")
    share, z2 = hits / of, NORMAL_95**2
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = NORMAL_95 / (1 + z2 / of) * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)
