"""A drafter's own probabilities against what comes."""

import math
import random

import pytest

from workers.drafting.expectation import Confidence


def taught(bias: float, *, greedy: bool = True) -> Confidence:
    """By tokens that come with `bias` times the probability that the drafter says."""
    confidence, draw = Confidence(), random.Random(1)
    for _ in range(4000):
        said = draw.uniform(0.01, 1.0)
        came = draw.random() < min(1.0, bias * said)
        confidence.saw(math.log(said), draw.randrange(3), greedy=greedy, accepted=came)
    return confidence


@pytest.mark.parametrize("bias", [0.5, 1.0, 1.3])
def test_what_it_says_becomes_what_comes(bias: float) -> None:
    confidence = taught(bias)
    for said in (0.25, 0.4, 0.65):
        found = confidence.probability(math.log(said), 1, greedy=True)
        assert found == pytest.approx(min(1.0, bias * said), rel=0.3)


def test_drawn_tokens_do_not_speak_for_the_likeliest() -> None:
    drawn = taught(0.5, greedy=False)
    assert drawn.probability(math.log(0.6), 0, greedy=True) == pytest.approx(0.6)
    assert drawn.probability(math.log(0.6), 0, greedy=False) < 0.45


def test_what_is_long_past_is_forgotten() -> None:
    confidence = Confidence()
    for came in (True, False):
        for _ in range(6000):
            confidence.saw(math.log(0.5), 0, greedy=True, accepted=came)
    assert confidence.probability(math.log(0.5), 0, greedy=True) < 0.1
