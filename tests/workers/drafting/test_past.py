"""Answers that were given before."""

import random
import tracemalloc
from array import array
from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from indexes import longest_match

from workers.drafting.lookup.occurrences import LONGEST
from workers.drafting.lookup.past import (
    OVERLAP,
    PIECE,
    PIECE_BYTES,
    TOKEN_BYTES,
    WAITING_BYTES,
    WAITING_SHARE,
    PastAnswers,
)


def remembered(past):
    """The places that are indexed, by scope and n-gram, as a plain count of the pieces gives
    them."""
    counted = Counter()
    for scope, piece in past._pieces.values():
        for end in range(1, len(piece)):
            counted.update((scope, tuple(piece[end - n : end])) for n in (8, 4, 2) if n <= end)
    return counted


def grams(past):
    """The same as it is indexed."""
    known = {}
    for scope, own in past._scopes.items():
        assert own.places, "an empty scope is none"
        for gram in own.places:
            found = own.find(gram)
            assert found == sorted(found)
            known[scope, tuple(array("i", gram))] = len(found)
    return known


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]), st.lists(st.integers(0, 3), max_size=40), st.booleans()
        )
    ),
    st.integers(0, 100),
)
def test_past_answers_stay_within_their_capacity_and_their_scope(answers, tokens):
    past = PastAnswers(tokens * TOKEN_BYTES)
    for scope, answer, works in answers:
        past.add(scope, answer)
        if works:
            past.work()
        indexed = sum(PIECE_BYTES + TOKEN_BYTES * len(p) for _, p in past._pieces.values())
        waiting = sum(PIECE_BYTES + WAITING_BYTES * len(p) for _, p in past._waiting)
        assert past.bytes == indexed + waiting <= past.capacity
        assert waiting <= WAITING_SHARE * past.capacity
        assert grams(past) == remembered(past)
    for scope in ("a", "b"):
        for one in past.find(scope, [0, 1, 2, 3, 0, 1]):
            assert any(one.text is piece for own, piece in past._pieces.values() if own == scope)
            assert one.matched == longest_match(one.text, one.start, [0, 1, 2, 3, 0, 1]) >= 2


def test_who_wants_most_says_how_much_is_kept():
    past = PastAnswers()
    past.add("", [1, 2, 3, 4])
    past.work()
    assert (past.bytes, past.find("", [1, 2])) == (0, [])
    for wanted in (100 * TOKEN_BYTES, 50 * TOKEN_BYTES, 0):
        past.want(wanted)
    assert past.capacity == 100 * TOKEN_BYTES
    with pytest.raises(ValueError, match="past_bytes must not be negative: -1"):
        past.want(-1)


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_as_many_bytes_are_taken_as_are_said_at_most(repeats):
    """As the allocator counts them, of answers that came once and of some that came again, while
    the index grows and when the oldest go."""
    draw, past = random.Random(repeats), PastAnswers(4_000_000)
    once = [" ".join(str(draw.randrange(300, 50_000)) for _ in range(300)) for _ in range(30)]
    tracemalloc.start()
    try:
        before, most = tracemalloc.get_traced_memory()[0], 0.0
        for at in range(30):
            past.add("", [int(token) for token in once[at // repeats].split()])
            assert tracemalloc.get_traced_memory()[0] - before < past.bytes + 3_000
            past.work()
            most = max(most, (tracemalloc.get_traced_memory()[0] - before) / past.bytes)
        assert 0.45 < most <= 1.0
    finally:
        tracemalloc.stop()


def test_what_is_indexed_outlasts_answers_that_come_faster_than_they_are_read():
    """Many short answers end between two steps: that of the oldest waiting must not leave nothing
    to be found."""
    draw, past = random.Random(0), PastAnswers(1_000_000)
    kept = deque(maxlen=1000)
    for _ in range(500):
        for _ in range(60):
            kept.append([draw.randrange(50_000) for _ in range(16)])
            past.add("", kept[-1])
        past.work()
    assert sum(len(piece) for _, piece in past._pieces.values()) > 800
    assert sum(bool(past.find("", answer[:8])) for answer in kept) > 40
    while past.work():
        pass
    assert past.find("", kept[-1][:8]), "and where nobody decodes, the last one is read as well"


def test_a_long_answer_is_kept_in_pieces_that_overlap():
    answer = list(range(2 * PIECE))
    past = PastAnswers(10_000 * TOKEN_BYTES)
    past.add("", answer)
    for _ in range(5):
        past.work()
    assert past.bytes > len(answer) * TOKEN_BYTES
    for end in (PIECE - 10, PIECE, PIECE + 10, 2 * PIECE - 20):
        [best] = [o for o in past.find("", answer[:end]) if o.matched == LONGEST][:1]
        assert best.text[best.start : best.start + 8] == answer[end : end + 8]
    assert OVERLAP == LONGEST
