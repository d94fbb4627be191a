"""Grants of draft tokens against all that could be granted."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.drafting.goodput import Offer, choose

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


def all_goodputs(survival, expected=None, nodes=0, seconds=None):
    """Of every way to grant foretold tokens, and the offer to any sequences."""
    count = len(survival)
    for drafted in product([False, True], repeat=count if expected else 0):
        taken = [i for i, is_drafted in enumerate(drafted) if is_drafted]
        free = [[0] if i in taken else range(len(s) + 1) for i, s in enumerate(survival)]
        for lengths in product(*free):
            tokens = count + sum(sum(s[:n]) for s, n in zip(survival, lengths, strict=True))
            tokens += sum(expected[i] for i in taken)
            spent = seconds(len(taken)) if taken else 0.0
            yield tokens / (step(count + sum(lengths) + nodes * len(taken)) + spent)


@given(survivals)
def test_no_other_grant_of_foretold_tokens_is_better(survival):
    choice = choose(survival, [], step)
    assert choice.goodput == pytest.approx(max(all_goodputs(survival)))
    assert choice.offer is None


@given(survivals, st.data(), st.floats(0.0, 8.0), st.floats(0.0, 4.0))
def test_an_offer_is_taken_where_it_pays(survival, data, first, more):
    expected = data.draw(st.lists(st.floats(0.0, 3.0), min_size=len(survival), max_size=4))
    expected = expected[: len(survival)]

    def seconds(count):
        return first + more * count

    choice = choose(survival, [Offer(expected, 3.0, seconds)], step)
    best = max(all_goodputs(survival, expected, 3, seconds))
    assert choice.goodput <= best * (1 + 1e-9)
    assert choice.goodput >= 0.9 * best
    if len(survival) == 1:
        assert choice.goodput == pytest.approx(best)
    if choice.offer is not None:
        assert choice.taken
        assert all(choice.lengths[i] == 0 for i in choice.taken)


def test_a_full_batch_that_pays_for_every_row_drafts_nothing():
    choice = choose([(0.6, 0.3)] * 8, [Offer([1.0] * 8, 4.0, lambda _: 3.0)], lambda rows: rows)
    assert choice.lengths == [0] * 8
    assert choice.offer is None


def test_rows_that_cost_nothing_are_all_drafted():
    choice = choose([(0.6, 0.3), (), (0.02,)], [], np.ones_like)
    assert choice.lengths == [2, 0, 1]


def test_slow_drafting_for_one_does_not_keep_the_others_waiting():
    offer = Offer([2.0, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2], 4.0, lambda count: 9.0 + count)
    assert choose([()] * 8, [offer], step).offer is None
    assert choose([()], [Offer([2.0], 4.0, offer.seconds)], step).taken == [0]


def test_what_others_emit_meanwhile_makes_waiting_dearer():
    """A step that takes two fifths longer for one token more pays alone, not beside three more."""

    def seconds(rows):
        return 1.0 + 0.4 * (np.asarray(rows) - 1.0)

    assert choose([[0.9]], [], seconds).lengths == [1]
    assert choose([[0.9]], [], seconds, tokens_beside=3.0).lengths == [0]
