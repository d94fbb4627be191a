"""Where text occurred before, what followed, and how sure that is."""

import gc
import random
import sys
import tracemalloc
from array import array
from collections import Counter, deque
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.drafting.lookup import occurrences
from workers.drafting.lookup.calibration import OWN, Calibration, kind_of
from workers.drafting.lookup.continuation import NOTHING, best_continuation
from workers.drafting.lookup.foreteller import EACH, PER_STEP, Foreteller
from workers.drafting.lookup.occurrences import EXAMINED, LONGEST, Index, Occurrence
from workers.drafting.lookup.past import (
    OVERLAP,
    PIECE,
    PIECE_BYTES,
    TOKEN_BYTES,
    WAITING_BYTES,
    WAITING_SHARE,
    PastAnswers,
)

ANCHORS = (8, 4, 2, 1)
texts = st.lists(st.integers(0, 4), min_size=1, max_size=120)


def indexed(text, at_once=1000):
    index = Index(text, ANCHORS)
    while index._indexed < len(text) - 1:
        index.extend(at_once)
    return index


def longest_match(text, end, pattern):
    length = 0
    while (
        length < min(end, len(pattern), LONGEST) and text[end - 1 - length] == pattern[-1 - length]
    ):
        length += 1
    return length


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


def test_of_many_occurrences_the_first_and_the_last_are_examined():
    text = [7] * 100
    starts = [one.start for one in indexed(text).find(text)]
    assert starts == [*range(8, 24), *range(84, 100)]


@given(texts, st.integers(1, 20))
def test_what_is_foretold_did_follow_and_is_counted(text, limit):
    occurrences = indexed(text).find(text)
    found = best_continuation(occurrences, Calibration(OWN).share, limit, 1e-9)
    assert len(found.tokens) == len(found.kinds) == len(found.survival) <= limit
    assert (found is NOTHING) == (not occurrences)
    for length in range(1, len(found.tokens) + 1):
        said = list(found.tokens[:length])
        assert any(text[o.start : o.start + length] == said for o in occurrences)
    assert sorted(found.survival, reverse=True) == list(found.survival)


def test_the_favourite_of_those_that_followed_is_foretold():
    text = [1, 2, 5, 6, 0, 1, 2, 5, 7, 0, 1, 2, 8, 0, 1, 2]
    found = best_continuation(indexed(text).find(text), Calibration(OWN).share, 2, 0.01)
    # [0, 1, 2] was followed by 5 and by 8, once each; [1, 2] by 5 twice and by 8 once
    assert found.tokens[0] == 5
    assert found.kinds[0] == (2, "most")


def test_a_longer_match_counts_for_more_and_grows_with_what_is_foretold():
    share = Calibration(OWN).share
    text = [9, *range(10, 20), 3, 4, 5, 6, 1, *range(10, 20)]
    found = best_continuation(indexed(text).find(text), share, 4, 0.01)
    assert found.tokens == (3, 4, 5, 6)
    assert found.kinds == ((8, "once"), (8, "once"), (12, "once"), (12, "once"))
    assert found.survival[0] == share((8, "once"))
    assert found.survival[1] == pytest.approx(share((8, "once")) ** 2)


def test_it_ends_where_it_is_not_sure():
    text = [1, 5, 0, 1, 6, 0, 1, 7, 0, 1]
    assert best_continuation(indexed(text).find(text), Calibration(OWN).share, 8, 0.5) == NOTHING


def test_kinds():
    assert kind_of(1, 1, 1) == (1, "once")
    assert kind_of(7, 3, 3) == (6, "all")
    assert kind_of(64, 2, 3) == (20, "most")
    assert kind_of(2, 1, 2) == (2, "few")


def test_shares_follow_what_is_seen():
    calibration, kind = Calibration(OWN), (2, "once")
    assert calibration.share(kind) == pytest.approx(OWN["once"][1])
    rng = random.Random(0)
    for _ in range(3000):
        calibration.saw(kind, rng.random() < 0.9)
    assert calibration.share(kind) == pytest.approx(0.9, abs=0.03)
    for _ in range(6000):
        calibration.saw(kind, False)
    assert calibration.share(kind) < 0.1, "what is old is forgotten"
    assert calibration.share((3, "once")) == pytest.approx(OWN["once"][2])


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


def test_the_oldest_go_first():
    past, answers = (
        PastAnswers(3 * (PIECE_BYTES + 30 * TOKEN_BYTES) + 2_000),
        [[n, n + 1, n + 2] * 10 for n in range(0, 50, 5)],
    )
    for answer in answers:
        past.add("", answer)
        past.work()
    known = [bool(past.find("", answer[:3])) for answer in answers]
    assert known == [False] * 7 + [True] * 3


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
    draw, past = random.Random(0), PastAnswers(4_000_000)
    kept = deque(maxlen=1000)
    for _ in range(2000):
        for _ in range(60):
            kept.append([draw.randrange(50_000) for _ in range(16)])
            past.add("", kept[-1])
        past.work()
    assert sum(len(piece) for _, piece in past._pieces.values()) > 3000
    assert sum(bool(past.find("", answer[:8])) for answer in kept) > 100
    while past.work():
        pass
    assert past.find("", kept[-1][:8]), "and where nobody decodes, the last one is read as well"


def test_several_answers_are_read_at_once_but_no_more_than_a_step_may_wait_for():
    past = PastAnswers(10_000 * TOKEN_BYTES)
    for start in range(0, 4000, 100):
        past.add("", list(range(start, start + 100)))
    assert past.work()
    assert len(past._pieces) == PIECE // 100


def test_a_scope_that_asks_little_after_it_asked_much_gives_its_room_back():
    past = PastAnswers(4_000_000)
    draw, tables = random.Random(0), []
    for tenant in "ab":
        for _ in range(20):
            past.add(tenant, [draw.randrange(50_000) for _ in range(500)])
            past.work()
            past.add("a", [1, 2, 3, 4, 5])
            past.work()
        tables.append(sys.getsizeof(past._scopes["a"].places))
    assert tables[1] < tables[0] / 8


def test_short_answers_take_no_more_than_is_said():
    """Each brings a name of its own for its scope, as requests do."""
    past, draw = PastAnswers(4_000_000), random.Random(0)
    answers = [" ".join(str(draw.randrange(300, 50_000)) for _ in range(3)) for _ in range(800)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for answer in answers:
            past.add("".join(["key ", "a" * 60]), [int(token) for token in answer.split()])
        assert tracemalloc.get_traced_memory()[0] - before <= past.bytes
    finally:
        tracemalloc.stop()


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


def test_an_occurrence_is_compared_up_to_the_longest():
    assert indexed([1] * 200).find([1] * 200)[0] == Occurrence([1] * 200, 8, 8)


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
            assert 0.3 * index.bytes < taken <= index.bytes
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


def test_a_step_indexes_so_much_of_all_texts_and_a_little_of_each():
    one = Foreteller(least=0.02, past=PastAnswers())
    draw = random.Random(0)
    prompts = [[draw.randrange(1000) for _ in range(700)] for _ in range(4)]
    for key, prompt in enumerate(prompts):
        one.begin(key, prompt, "", greedy=True)
    steps = []
    while not steps or steps[-1] < 4 * 699:
        one.step()
        for key in range(4):
            one.foretell(key, 4)
        steps.append(sum(state.index._indexed for state in one._states.values()))
    assert steps[0] == PER_STEP + 3 * EACH
    most = PER_STEP + 4 * EACH
    assert all(b - a <= most for a, b in pairwise(steps))
    assert one.bytes == 4 * 699 * occurrences.TOKEN_BYTES
