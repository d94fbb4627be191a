"""A learned drafter's levels, as far as they pay."""

import math
from types import SimpleNamespace
from typing import Any

from workers.drafting.expectation import Expectation
from workers.torch_engine.drafters.learned import Learned


def proposal(*probabilities: float) -> Any:
    """Its frontier's nodes have these probabilities, by the drafter's own word."""
    return SimpleNamespace(
        sequence=SimpleNamespace(id=0, sampling=SimpleNamespace(temperature=0.0)),
        frontier=list(range(len(probabilities))),
        depths=[0] * len(probabilities),
        values=[math.log(one) for one in probabilities],
    )


def learned(price: float) -> Learned:
    nothing: Any = None
    return Learned(Expectation("eagle3", 4), nothing, {}, price=price)


def test_a_level_has_to_bring_its_price() -> None:
    stop = learned(0.3)
    assert stop.goes_on(proposal(0.9))
    assert stop.goes_on(proposal(0.35, 0.35))
    assert not stop.goes_on(proposal(0.3))
    stop.price = 0.1
    assert stop.goes_on(proposal(0.3))


def test_it_learns_which_levels_hold() -> None:
    stop = learned(0.4)
    for _ in range(200):
        stop.expectation.saw(1, 2)
    assert not stop.goes_on(proposal(0.9))
    for _ in range(2000):
        stop.expectation.saw(2, 2)
    assert stop.goes_on(proposal(0.9))


def test_a_level_has_to_bring_more_than_what_it_replaces_or_than_a_row() -> None:
    stop = learned(0.1)
    stop.row_price = 0.3
    likely = proposal(0.9, 0.05)
    assert stop.goes_on(likely)
    stop.granted = {0: 2}
    assert stop.goes_on(likely), "the next node replaces that of 0.05"
    stop.granted = {0: 1}
    assert stop.goes_on(likely), "it is worth a row"
    stop.row_price = 0.6
    assert not stop.goes_on(likely)
    stop.granted = {0: 3}
    assert stop.goes_on(likely), "there is room"
