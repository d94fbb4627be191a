"""Grants of draft tokens against all that could be granted."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.drafting.goodput import WORTH, Offer, choose

SECONDS = np.array(
    [0.0, 10, 11, 11, 12, 12, 12, 18, 18, 19, 19, 20, 20, 27, 27, 28, 29, 30, 31, 32]
)
"""By rows: a staircase, as of kernels that compute six rows at once."""


def step(rows):
    return np.interp(rows, np.arange(len(SECONDS)), SECONDS)


def falling(chances):
    return tuple(np.cumprod(chances))


survivals = st.lists(
    st.lists(st.floats(0.05, 0.99), max_size=4).map(falling), min_size=1, max_size=3
)


def all_goodputs(survival, offered=None, seconds=None):
    """Of every way to grant tokens: looked-up ones, or those of the offer."""
    count = len(survival)
    for drafted in product([False, True], repeat=count if offered else 0):
        taken = [i for i, is_drafted in enumerate(drafted) if is_drafted]
        there = [offered[i] if i in taken else sure for i, sure in enumerate(survival)]
        for lengths in product(*(range(len(sure) + 1) for sure in there)):
            tokens = count + sum(sum(s[:n]) for s, n in zip(there, lengths, strict=True))
            spent = seconds(len(taken)) if taken else 0.0
            yield tokens / (step(count + sum(lengths)) + spent)


@given(survivals)
def test_no_other_grant_of_looked_up_tokens_is_better(survival):
    choice = choose(survival, [], step)
    best, none = max(all_goodputs(survival)), len(survival) / float(step(len(survival)))
    assert choice.goodput == pytest.approx(best if best >= WORTH * none else none)
    assert choice.offer is None


@given(survivals, st.data(), st.floats(0.0, 8.0), st.floats(0.0, 4.0))
def test_an_offer_is_taken_where_it_pays(survival, data, first, more):
    chances = st.lists(st.floats(0.05, 0.99), min_size=3, max_size=3).map(falling)
    offered = [data.draw(chances) for _ in survival]

    def seconds(count):
        return first + more * count

    choice = choose(survival, [Offer(np.array(offered), seconds)], step)
    best = max(all_goodputs(survival, offered, seconds))
    assert choice.goodput <= best * (1 + 1e-9)
    assert choice.goodput >= 0.9 * best / WORTH
    if len(survival) == 1:
        assert choice.goodput >= best / WORTH**2
    assert (choice.offer is not None) == bool(choice.taken)
    if choice.offer is not None:
        rows = len(survival) + sum(choice.lengths)
        took = float(step(rows)) + seconds(len(choice.taken))
        assert choice.expected == pytest.approx(choice.goodput * took - len(survival))


def test_slow_drafting_for_one_does_not_keep_the_others_waiting():
    def seconds(count):
        return 9.0 + count

    some = [[0.9, 0.6, 0.5], *([[0.1, 0.1, 0.0]] * 7)]
    assert choose([()] * 8, [Offer(np.array(some), seconds)], step).offer is None
    assert choose([()], [Offer(np.array(some[:1]), seconds)], step).taken == [0]


def test_what_is_only_slightly_better_is_left():
    """Of several expectations the highest is too high."""

    def seconds(rows):
        return 10.0 + 0.4 * np.asarray(rows)

    assert choose([[0.05]], [], seconds).lengths == [0]
    assert choose([[0.2]], [], seconds).lengths == [1]
    offer = Offer(np.array([[0.25]]), lambda _: 0.0)
    assert choose([[0.2]], [offer], seconds).offer == 0
    assert choose([[0.24]], [offer], seconds).offer is None


def test_what_others_emit_meanwhile_makes_waiting_dearer():
    """A step that takes two fifths longer for one token more pays alone, not beside three more."""

    def seconds(rows):
        return 1.0 + 0.4 * (np.asarray(rows) - 1.0)

    assert choose([[0.9]], [], seconds).lengths == [1]
    assert choose([[0.9]], [], seconds, other_tokens=3.0).lengths == [0]
