"""What comes of foretold tokens that were chosen to be verified, over what was promised of them."""

WEIGHT = 10.0
"""Promised tokens, all of which are taken to have come before anything was seen."""
MEMORY = 150.0
"""Promised tokens after which earlier ones weigh less."""
LEAST, MOST = 0.5, 1.0


class Promises:
    """Tokens are verified because much is expected of them, and of many expectations the highest
    are too high: the more sequences there are to choose among, the less of what is promised comes,
    though all that is foretold comes as often as it should."""

    def __init__(self) -> None:
        self._came = self._promised = WEIGHT

    @property
    def kept(self) -> float:
        """The share of promised tokens that comes."""
        return min(MOST, max(LEAST, self._came / self._promised))

    def saw(self, promised: float, came: int) -> None:
        """So many tokens were expected of a draft that was verified, and so many came."""
        keep = 1.0 - promised / MEMORY if self._promised > MEMORY else 1.0
        self._came = keep * self._came + came
        self._promised = keep * self._promised + promised
