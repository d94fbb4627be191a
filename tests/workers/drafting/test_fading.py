"""A ratio in which old observations decay."""

import pytest

from workers.drafting.fading import FadingRatio


def test_it_moves_from_the_prior_to_what_is_seen() -> None:
    ratio = FadingRatio(0.5, weight=4.0, memory=100.0)
    assert ratio.value == 0.5
    ratio.saw(1.0)
    assert ratio.value == pytest.approx(3.0 / 5.0)
    assert ratio.given(1.0) == 1.0
    for _ in range(1000):
        ratio.saw(1.0, 2.0)
    assert ratio.value == pytest.approx(0.5, abs=0.01)


def test_old_observations_decay() -> None:
    ratio = FadingRatio(weight=4.0, memory=100.0)
    for observed in (1.0, 0.0):
        for _ in range(1000):
            ratio.saw(observed)
        assert ratio.value == pytest.approx(observed, abs=0.05)
    ratio.saw(0.0, 1e6)
    assert ratio.value < 1e-4, "one large observation replaces all others"
