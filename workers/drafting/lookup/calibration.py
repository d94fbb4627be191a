"""How often a token comes that followed where the last tokens occurred before."""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Literal

Agreement = Literal["once", "all", "most", "few"]
Kind = tuple[int, Agreement]
"""Tokens of the match before it, of LENGTHS; how often it followed."""

LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 20)
Before = Mapping[Agreement, Sequence[float]]
"""What is expected before anything was seen, by LENGTHS."""
OWN: Before = {
    "once": (0.30, 0.55, 0.66, 0.73, 0.78, 0.79, 0.87, 0.90, 0.97),
    "all": (0.51, 0.77, 0.81, 0.88, 0.90, 0.90, 0.96, 0.99, 0.995),
    "most": (0.41,) * len(LENGTHS),
    "few": (0.14,) * len(LENGTHS),
}
"""Of what followed in the same text."""
OTHERS: Before = {
    "once": (0.20, 0.26, 0.35, 0.42, 0.49, 0.58, 0.63, 0.78, 0.85),
    "all": (0.40, 0.52, 0.55, 0.71, 0.75, 0.83, 0.84, 0.95, 0.99),
    "most": (0.41,) * len(LENGTHS),
    "few": (0.16,) * len(LENGTHS),
}
"""Of what followed in past answers. Both were measured on 400 answers of SmolLM2-135M at
temperature 0, of nine domains."""
WEIGHT = 20.0
"""Of what is expected, in tokens that were seen."""
MEMORY = 2000.0
"""Tokens of a kind after which earlier ones weigh less."""


RATE = 0.25
"""Of what came and was not expected, or the other way round, how much a text's odds move, as a
logarithm."""


def kind_of(matched: int, followed: int, of: int) -> Kind:
    """Of a token that followed so often after `of` occurrences of a match so long."""
    length = LENGTHS[bisect_right(LENGTHS, matched) - 1]
    if of == 1:
        return length, "once"
    if followed == of:
        return length, "all"
    return length, "most" if 2 * followed > of else "few"


class Calibration:
    """Learns from every token that the target chose where one was foretold, drafted or not."""

    def __init__(self, before: Before) -> None:
        self._came = {
            (length, agreement): [share * WEIGHT, WEIGHT]
            for agreement, shares in before.items()
            for length, share in zip(LENGTHS, shares, strict=True)
        }

    def share(self, kind: Kind) -> float:
        """How often tokens of this kind come, where those before them came."""
        came, seen = self._came[kind]
        return came / seen

    def saw(self, kind: Kind, came: bool) -> None:
        """A token of this kind was foretold, and the target chose it or not."""
        counts = self._came[kind]
        keep = 1.0 - 1.0 / MEMORY if counts[1] >= MEMORY else 1.0
        counts[0] = counts[0] * keep + came
        counts[1] = counts[1] * keep + 1.0


class TextCalibration:
    """The same of one text, whose foretold tokens come more or less often than usual: their odds
    are the usual ones times a number that follows what came (a logistic regression with one
    offset, step by step), so that a text in which look-ups fail is soon not believed, and that
    what is promised of a text is, over all its tokens, what comes.
    """

    def __init__(self, usual: Calibration) -> None:
        self._usual, self._offset = usual, 0.0

    def share(self, kind: Kind) -> float:
        """How often tokens of this kind come here."""
        share = self._usual.share(kind)
        odds = math.exp(self._offset) * share
        return odds / (odds + 1.0 - share)

    def saw(self, kind: Kind, came: bool) -> None:
        """A token of this kind was foretold here, and the target chose it or not."""
        self._offset += RATE * (came - self.share(kind))
        self._usual.saw(kind, came)
