"""Where the last tokens of a text occurred before."""

import gc
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from indexes import ANCHORS, indexed, longest_match, texts

from workers.drafting.lookup.occurrences import EXAMINED, Index


@given(texts, st.integers(1, 50))
def test_every_occurrence_is_one_and_the_longest_is_found(text, at_once):
    found = indexed(text, at_once).find(text)
    for one in found:
        assert one.matched == longest_match(text, one.start, text) > 0
        assert one.start < len(text)
    ends = [end for end in range(1, len(text)) if text[end - 1] == text[-1]]
    assert bool(found) == bool(ends)
    if 0 < len(ends) <= EXAMINED:
        longest = max(longest_match(text, end, text) for end in ends)
        assert max(one.matched for one in found) == longest


TOKEN_BYTES = 480


@pytest.mark.parametrize("repeats", [1, 4])
def test_an_index_takes_no_more_than_it_says(repeats):
    """As the allocator counts it, and with nothing for the garbage collector to visit."""
    draw = random.Random(repeats)
    text = [draw.randrange(50_000) for _ in range(4000 // repeats)] * repeats
    index = Index(text, ANCHORS)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        while index.extend(512):
            taken = tracemalloc.get_traced_memory()[0] - before
            assert 0.3 * TOKEN_BYTES * index._indexed < taken <= TOKEN_BYTES * index._indexed
    finally:
        tracemalloc.stop()
    assert not gc.is_tracked(index._ends.places)


@given(texts, st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_it_does_not_matter_in_which_pieces_a_text_is_indexed(text, sizes):
    at_once, growing = Index(text, ANCHORS), Index(text, ANCHORS)
    at_once.extend(1000)
    turn = 0
    while growing.extend(sizes[turn % len(sizes)]):
        turn += 1
    assert growing._ends == at_once._ends
