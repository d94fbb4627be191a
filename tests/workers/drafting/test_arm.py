"""What is expected of a learned drafter, by what it did."""

import random
from itertools import accumulate
from operator import mul
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workers.drafting.arm import Arm


def sequence(number: int = 0) -> Any:
    return SimpleNamespace(id=number)


def arm(levels: int = 3) -> Arm:
    return Arm("eagle3", levels)


def promised(one: Arm, to: Any, levels: int) -> float:
    return one.expected(to)[levels - 1]


def test_more_levels_never_promise_less() -> None:
    assert list(arm().expected(sequence())) == sorted(arm().expected(sequence()))
    assert promised(arm(), sequence(), 1) > 0.0


def test_a_sequence_speaks_for_itself_and_for_the_others() -> None:
    one = arm()
    for number in range(20):
        one.saw(sequence(number), 1, 3)
    usual = promised(one, sequence(99), 3)
    for _ in range(30):
        one.saw(sequence(0), 3, 3)
    assert promised(one, sequence(0), 3) > promised(one, sequence(99), 3) > usual


@pytest.mark.parametrize("shares", [(0.8, 0.8, 0.8), (0.9, 0.4, 0.2)])
def test_what_is_usual_is_what_was_seen(shares: tuple[float, ...]) -> None:
    """Levels of which nothing is known say nothing, also where short answers show few levels."""
    one, draw = arm(), random.Random(1)
    for number in range(4000):
        held = next((k for k, share in enumerate(shares) if draw.random() > share), len(shares))
        known = draw.randint(1, 3)
        one.saw(sequence(number), min(held, known), known)
        one.forget(sequence(number))
    truth = list(accumulate(accumulate(shares, mul)))
    assert one.expected(sequence(-1)) == pytest.approx(truth, rel=0.12)


def test_a_level_that_nobody_drafted_is_taken_to_hold_as_the_one_above() -> None:
    one = arm()
    for number in range(100):
        one.saw(sequence(number), 1, 1)
    assert promised(one, sequence(-1), 3) > 2.5


def test_trees_are_those_that_were_drawn_as_far_as_more_or_less_is_expected() -> None:
    one, draws = arm(), 40
    for _ in range(draws):
        one.saw(sequence(0), 1, 3)
        one.drew([0.2, 0.6, 0.1], [1, 0, 2])
        one.drew([0.5], [0])
    usual = (0.9 + 0.5) / 2
    many = [sequence(number) for number in range(20)]
    first, tree = one.trees(many)
    assert tree.shape[0] == len(many)
    assert set(np.round(tree[:, :, 1].ravel() / tree[:, :, 0].ravel(), 3)) == {0.333, 0.0}
    assert np.count_nonzero(first, axis=-1).max() == 1, "of the first level alone"
    tokens = tree.sum(axis=-1).mean(axis=-1)
    assert tokens[1:] == pytest.approx(tokens[1]), "whichever tree a sequence gets"
    between = sorted((usual, one.expected(many[1])[2]))
    assert between[0] < tokens[1] < between[1]


def test_before_one_was_drawn_it_is_a_chain() -> None:
    one = arm()
    chains = one.chains([sequence()])
    assert [chain.shape for chain in chains] == [(1, 1, 1), (1, 1, 2), (1, 1, 3)]
    for chain, tree in zip((chains[0], chains[-1]), one.trees([sequence()]), strict=True):
        assert tree.mean(axis=1).sum() == pytest.approx(chain.sum())
    assert one.reached == 3


def test_it_remembers_how_deep_it_drafted() -> None:
    one = arm()
    for _ in range(60):
        one.drew([0.5], [0])
        one.drew([0.5, 0.4], [0, 1])
    assert one.reached == pytest.approx(1.5, abs=0.1)


def test_a_text_that_is_hard_for_another_drafter_is_so_for_this_one() -> None:
    one = arm()
    for _ in range(10):
        one.heard(sequence(0), 0.0, 1.0)
        one.heard(sequence(1), 2.0, 1.0)
    hard, usual, easy = (promised(one, sequence(number), 3) for number in (0, 2, 1))
    assert hard < usual < easy


def test_who_sits_out_goes_back_to_the_usual() -> None:
    one = arm()
    for _ in range(5):
        one.saw(sequence(0), 0, 3)
    low = promised(one, sequence(0), 3)
    for _ in range(800):
        one.sat_out(sequence(0))
    usual = one.expected(sequence(1))
    assert low < promised(one, sequence(0), 3) == pytest.approx(usual[2], rel=0.01)
    one.forget(sequence(0))
    assert one.expected(sequence(0)) == usual


def test_who_began_unluckily_is_hoped_for_again_while_he_sits_out() -> None:
    """Else nobody would ever find out that it was bad luck."""
    one, text = arm(), sequence()
    fresh = one.chains([text])[0][0, 0, 0] / one.expected(text)[0]
    for _ in range(20):
        one.saw(text, 0, 3)
    seen = one.chains([text])[0][0, 0, 0] / one.expected(text)[0]
    assert 1.0 < seen < 1.15 < fresh
    for _ in range(2000):
        one.sat_out(text)
    again = one.chains([text])[0][0, 0, 0] / one.expected(text)[0]
    assert seen + 0.2 < again <= fresh


def test_what_it_promises_when_it_is_chosen_is_lowered_to_what_came() -> None:
    """Whatever its drafts are said to hold; and forgotten while it sits out."""
    one, other = arm(), arm()
    for _ in range(200):
        one.kept(4.0, 2.0)
    for offered, whole in zip(one.chains([sequence()]), other.chains([sequence()]), strict=True):
        np.testing.assert_allclose(offered, 0.5 * whole, rtol=0.05)
    np.testing.assert_allclose(one.trees([sequence()]), 0.5 * other.trees([sequence()]), rtol=0.05)
    for _ in range(10_000):
        one.sat_out(sequence())
    np.testing.assert_allclose(one.trees([sequence()]), other.trees([sequence()]), rtol=0.05)
