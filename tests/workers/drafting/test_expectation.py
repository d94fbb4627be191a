"""What is expected of a learned drafter, by its drafts and by its own probabilities."""

import math
import random

import numpy as np
import pytest

from workers.drafting.expectation import LEAST_TRUST, OPTIMISM, Confidence, Expectation


def expectation(levels: int = 3) -> Expectation:
    return Expectation("eagle3", levels)


def test_deeper_levels_are_never_more_probable() -> None:
    hard, usual, easy = expectation().accepted([0.2, 1.0, 5.0])
    assert list(usual) == sorted(usual, reverse=True)
    assert (hard > 0.0).all()
    assert all(h < u < e < 1.0 for h, u, e in zip(hard, usual, easy, strict=True))


@pytest.mark.parametrize("shares", [(0.8, 0.8, 0.8), (0.9, 0.4, 0.2)])
def test_it_learns_how_often_levels_hold(shares: tuple[float, ...]) -> None:
    """Short answers show few levels, and levels that are not known say nothing."""
    one, draw = expectation(), random.Random(1)
    for _ in range(4000):
        held = next((k for k, share in enumerate(shares) if draw.random() > share), len(shares))
        known = draw.randint(1, 3)
        one.saw(min(held, known), known)
    [accepted] = one.accepted()
    assert accepted == pytest.approx(np.cumprod(shares), rel=0.12)
    assert one.share(1) == pytest.approx(accepted[1] / accepted[0])
    assert one.share(9) == one.share(2)


def test_before_a_tree_was_drawn_chains_are_offered() -> None:
    one = expectation()
    levels, offered = zip(*one.offers([1.0, 0.5]), strict=True)
    assert levels == (1, 2, 3)
    assert [tokens.shape for tokens in offered] == [(2, 1), (2, 2), (2, 3)]
    assert (offered[2][0] > offered[2][1]).all()
    assert [levels for levels, _ in Expectation("a", 8).offers([1.0])] == [1, 2, 4, 8]


def test_then_the_mean_tree_scaled_to_each_sequence() -> None:
    one = expectation()
    for _ in range(200):
        one.saw(1, 3)
        one.drew([0.2, 0.6, 0.1], [1, 0, 2])
        one.drew([0.5], [0])
        one.settled(1.0, 1.0 * one.trust)
    (first_levels, first), (levels, whole) = one.offers([1.0, 0.1])
    assert (first_levels, levels) == (1.0, pytest.approx(2.0, abs=0.2))
    assert np.count_nonzero(first, axis=1).tolist() == [1, 1], "of the first level alone"
    assert np.count_nonzero(whole, axis=1).tolist() == [3, 3]
    assert whole[0] == pytest.approx(sorted(whole[0], reverse=True))
    usual, accepted = (0.9 + 0.5) / 2, one.accepted()[0, :2].sum()
    low, high = sorted((usual, accepted))
    assert low * 0.9 < whole[0].sum() < high * 1.1
    assert whole[1].sum() < whole[0].sum()


def test_it_is_trusted_as_far_as_it_kept_its_word_and_tried_again() -> None:
    one = expectation()
    assert one.trust == OPTIMISM
    for _ in range(300):
        one.settled(2.0, 2.0 * one.trust)
    assert one.trust == pytest.approx(1.0, abs=0.05)
    kept = one.offers([1.0])[0][1]
    for _ in range(300):
        one.settled(0.0, 2.0)
    assert one.trust == LEAST_TRUST
    assert one.offers([1.0])[0][1] < 0.6 * kept
    for _ in range(10_000):
        one.idle()
    assert one.trust == pytest.approx(OPTIMISM, abs=0.05)


def test_two_bad_drafts_do_not_exclude_a_drafter() -> None:
    one = Expectation("d", 4)
    for _ in range(2):
        one.saw(0, 1)
        one.settled(0.0, 1.0)
    (_, (first,)), *_ = one.offers([1.0])
    assert first[0] > 0.6


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
