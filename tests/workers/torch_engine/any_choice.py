"""In the place of `choose`: whoever, for whomever."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from workers.drafting.goodput import Choice, Offer


def anyhow(draw: random.Random) -> Callable[..., Choice]:
    """Any of the offers or none, for any of the sequences; the others copy, or draft nothing."""

    def choose(looked_up: Sequence[Sequence[float]], offers: Sequence[Offer], *_: Any) -> Choice:
        everyone = range(len(looked_up))
        offer = draw.choice([None, *range(len(offers))])
        taken = [] if offer is None else [i for i in everyone if draw.random() < 0.6]
        lengths = [0 if i in taken else draw.randint(0, len(looked_up[i])) for i in everyone]
        return Choice(lengths, offer if taken else None, taken, 0.0)

    return choose
