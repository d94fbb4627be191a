"""A learned drafter's levels, as far as they pay."""

import math
from types import SimpleNamespace
from typing import Any

from workers.drafting.confidence import Confidence
from workers.drafting.ease import Ease
from workers.torch_engine.drafters.paying import Paying


def proposal(*sure: float, depth: int = 0) -> Any:
    """Its frontier's nodes have these probabilities, by the drafter's own word."""
    return SimpleNamespace(
        sequence=SimpleNamespace(id=0, sampling=SimpleNamespace(temperature=0.0)),
        frontier=list(range(len(sure))),
        depths=[depth] * len(sure),
        values=[math.log(one) for one in sure],
    )


def test_a_level_has_to_bring_its_price() -> None:
    stop = Paying(Confidence(), Ease())
    stop.price = 0.3
    assert stop.goes_on(proposal(0.9))
    assert stop.goes_on(proposal(0.3, 0.3))
    assert not stop.goes_on(proposal(0.3))
    stop.price = 0.1
    assert stop.goes_on(proposal(0.3))


def test_it_learns_which_levels_hold() -> None:
    stop = Paying(Confidence(), Ease())
    stop.price = 0.4
    for _ in range(200):
        stop.saw([True, False])
    assert not stop.goes_on(proposal(0.9))
    for _ in range(2000):
        stop.saw([True, True])
    assert stop.goes_on(proposal(0.9))


def test_a_sequence_that_is_hard_is_left_sooner() -> None:
    ease = Ease()
    stop = Paying(Confidence(), ease)
    stop.price = 0.4
    assert stop.goes_on(proposal(0.8))
    for _ in range(20):
        ease.saw(0, 0.0, 1.0)
    assert not stop.goes_on(proposal(0.8))
