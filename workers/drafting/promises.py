"""What comes of drafts that were chosen, over what was promised of them."""

WEIGHT = 10.0
"""Promised tokens, all of which are taken to have come before anything was seen."""
MEMORY = 150.0
"""Promised tokens after which earlier ones weigh less."""
LEAST, MOST = 0.5, 1.0


class Promises:
    """Drafts are chosen because much is expected of them, and of many expectations the highest are
    too high: the more there is to choose among, the less of what is promised comes, though all that
    might have been drafted would come as often as it should."""

    def __init__(self) -> None:
        self._came = self._promised = WEIGHT

    @property
    def kept(self) -> float:
        """The share of promised tokens that comes."""
        return min(MOST, max(LEAST, self._came / self._promised))

    def fade(self, share: float) -> None:
        """That much of what is known is forgotten."""
        self._came += share * (WEIGHT - self._came)
        self._promised += share * (WEIGHT - self._promised)

    def saw(self, promised: float, came: float) -> None:
        """So many tokens were expected of a draft that was verified, and so many came."""
        keep = 1.0 - promised / MEMORY if self._promised > MEMORY else 1.0
        self._came = keep * self._came + came
        self._promised = keep * self._promised + promised
