"""The fewest seconds of an answer, if it were known what is kept."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.fit.bounds import best_seconds, fixed_seconds, longest_seconds

DRAFTERS = ("cheap", "dear")


def cost(drafter, length):
    return 1.0 + 0.05 * length + (0.3 * length if drafter == "dear" else 0.0)


@st.composite
def traced(draw):
    tokens = draw(st.integers(1, 7))
    kept = st.lists(st.integers(0, 4), min_size=tokens, max_size=tokens)
    return {name: draw(kept) for name in DRAFTERS}


def every_schedule(kept):
    """Seconds of all ways through the answer, one after the other."""
    tokens = len(kept["cheap"])
    for choices in product([None, *DRAFTERS], range(5), repeat=tokens):
        position, seconds, steps = 0, 0.0, iter(zip(choices[::2], choices[1::2], strict=True))
        while position < tokens:
            drafter, length = next(steps)
            if (drafter is None) != (length == 0) or (drafter and length > kept[drafter][position]):
                break
            seconds += cost(drafter, length)
            position += length + 1
        else:
            yield seconds


@given(traced().filter(lambda kept: len(kept["cheap"]) <= 3))
def test_no_schedule_is_cheaper_than_the_best(kept):
    assert best_seconds(kept, cost) == pytest.approx(min(every_schedule(kept)))


@given(traced())
def test_bounds_are_in_order(kept):
    """Knowing more never takes longer, and a fixed drafter pays for what is not kept as well."""
    best = best_seconds(kept, cost)
    assert best <= longest_seconds(kept, cost) + 1e-9
    for name, own in kept.items():
        assert best <= longest_seconds({name: own}, cost) + 1e-9
        assert longest_seconds({name: own}, cost) <= fixed_seconds(own, cost(name, 4)) + 1e-9


def test_the_longest_draft_is_taken_and_the_cheapest_of_equals():
    kept = {"cheap": [1, 0, 1, 0, 0, 0], "dear": [1, 0, 3, 0, 0, 0]}
    assert longest_seconds(kept, cost) == pytest.approx(cost("cheap", 1) + cost("dear", 3))
    beyond = {"cheap": [2, 0], "dear": [4, 0]}
    assert longest_seconds(beyond, cost) == pytest.approx(cost("cheap", 1))


def test_positions_must_be_those_of_one_answer():
    with pytest.raises(ValueError, match="one answer"):
        longest_seconds({"cheap": [0, 0], "dear": [0]}, cost)
