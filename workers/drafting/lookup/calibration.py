"""How often a looked-up token is accepted, by its match and how often it followed."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Literal

from workers.drafting.fading import FadingRatio

Agreement = Literal["once", "all", "most", "few"]
Kind = tuple[int, Agreement]
"""Tokens of the match, of LENGTHS; how many of the match's occurrences the token followed."""

LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 20)
Before = Mapping[Agreement, Sequence[float]]
"""Acceptance before anything is seen, by LENGTHS."""
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
PREDICTED: Before = {
    "once": (0.50, 0.65, 0.75, 0.82, 0.86, 0.88, 0.92, 0.96, 0.985),
    "all": (0.5,) * len(LENGTHS),
    "most": (0.5,) * len(LENGTHS),
    "few": (0.5,) * len(LENGTHS),
}
"""Of what the client predicted, by the tokens that were right in a row. The answer has one place in
it, so every token of it followed once."""
STORED: Before = {
    "once": (0.10, 0.15, 0.21, 0.21, 0.27, 0.33, 0.58, 0.65, 0.75),
    "all": (0.20, 0.30, 0.41, 0.47, 0.50, 0.63, 0.74, 0.85, 0.90),
    "most": (0.33,) * len(LENGTHS),
    "few": (0.12,) * len(LENGTHS),
}
"""For a datastore that the answers do not quote. Measured on 200 answers of SmolLM2-135M at
temperature 0, in 2.2 million tokens of other answers. Matches of one or two are not looked up."""
Odds = Literal["texts", "prediction", "datastore"]
"""The kinds of sources that have odds of their own in each text."""
WEIGHT, MEMORY = 20.0, 2000.0


def kind_of(matched: int, followed: int, of: int) -> Kind:
    """Return the kind of a token that followed so often after `of` occurrences of a match."""
    length = LENGTHS[bisect_right(LENGTHS, matched) - 1]
    if of == 1:
        return length, "once"
    if followed == of:
        return length, "all"
    return length, "most" if 2 * followed > of else "few"


class Calibration:
    """Learn the acceptance of each kind from every looked-up token of which the target's choice is
    known, drafted or not."""

    def __init__(self, before: Before, odds: Odds = "texts") -> None:
        self.odds = odds
        self._ratios = {
            (length, agreement): FadingRatio(share, weight=WEIGHT, memory=MEMORY)
            for agreement, shares in before.items()
            for length, share in zip(LENGTHS, shares, strict=True)
        }

    def share(self, kind: Kind) -> float:
        """Return how often tokens of a kind are accepted where those before them are."""
        return self._ratios[kind].value

    def saw(self, kind: Kind, accepted: bool) -> None:
        """Learn whether a token of a kind was the target's choice."""
        self._ratios[kind].saw(accepted)
