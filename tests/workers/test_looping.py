"""The definition of a loop."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.text import is_looping


@pytest.mark.parametrize(
    ("tokens", "looping"),
    [
        ([1] * 31, False),
        ([1] * 32, True),
        ([1] * 31 + [2], False),
        (list(range(10)) * 4, True),
        (list(range(11)) * 4, False),
        (list(range(100)), False),
        ([9] * 40 + list(range(32)), False),
    ],
)
def test_loops(tokens: list[int], looping: bool) -> None:
    assert is_looping(tokens) is looping


@given(st.lists(st.integers(0, 1), min_size=1, max_size=10), st.integers(0, 31))
def test_whatever_repeats_three_times_to_the_end_loops(piece: list[int], offset: int) -> None:
    tokens = (piece * 64)[offset : offset + 32]
    assert is_looping([5, 5, *tokens])
