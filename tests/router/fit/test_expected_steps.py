"""Steps from acceptance."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.fit.traced import expected_steps


def cumulative(shares):
    kept, whole = [], 1.0
    for share in shares:
        whole *= share
        kept.append(whole)
    return kept


SURE = st.lists(st.sampled_from([0.0, 1.0]), max_size=4).map(cumulative)
LIKELY = st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]), max_size=4).map(cumulative)


def walked(kept, tokens, chance):
    """Steps of one decoding; chance() is below the probability of keeping so many drafts."""
    at, steps = 1, 1
    while at < tokens:
        drawn = chance()
        at += 1 + sum(drawn < share for share in kept[at - 1])
        steps += 1
    return steps


def test_plain_decoding_takes_a_step_a_token():
    assert expected_steps([()] * 6, 7) == 7.0
    assert expected_steps([], 1) == 1.0
    assert expected_steps([], 0) == 0.0


def test_drafts_that_are_kept_save_steps():
    # the prefill's token; two drafts and one more; what is left is one step
    assert expected_steps([(1.0, 1.0), (0.0,), (0.0,), (1.0, 0.0)], 5) == 3.0
    assert expected_steps([(0.5,), ()], 3) == 0.5 * 2 + 0.5 * 3


@given(st.lists(SURE, min_size=1, max_size=30))
def test_what_is_sure_is_walked_exactly(kept):
    tokens = len(kept) + 1
    assert expected_steps(kept, tokens) == walked(kept, tokens, lambda: 0.5)


@given(st.lists(LIKELY, min_size=1, max_size=12), st.integers(0, 1000))
def test_what_is_likely_is_the_mean_of_walks(kept, seed):
    tokens, rng = len(kept) + 1, random.Random(seed)
    walks = [walked(kept, tokens, rng.random) for _ in range(600)]
    mean = sum(walks) / len(walks)
    spread = (sum((w - mean) ** 2 for w in walks) / len(walks)) ** 0.5
    assert abs(expected_steps(kept, tokens) - mean) <= 6.0 * spread / 600**0.5 + 1e-9


@given(st.lists(LIKELY, min_size=1, max_size=12))
def test_bounds(kept):
    tokens, longest = len(kept) + 1, max(map(len, kept))
    steps = expected_steps(kept, tokens)
    assert 1.0 + (tokens - 1) / (longest + 1) - 1e-9 <= steps <= tokens + 1e-9


def test_positions_have_to_be_those_of_the_answer():
    with pytest.raises(ValueError, match="3 positions for an answer of 3 tokens"):
        expected_steps([()] * 3, 3)
