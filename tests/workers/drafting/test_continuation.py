"""What followed elsewhere, and with which probability."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from indexes import indexed, texts

from workers.drafting.lookup.look_ups import NOTHING, OWN, Calibration, best_continuation


@given(texts, st.integers(1, 20))
def test_what_is_looked_up_did_follow(text, limit):
    occurrences = indexed(text).find(text)
    found = best_continuation(occurrences, Calibration(OWN).share, limit, 1e-9)
    assert len(found.tokens) == len(found.kinds) == len(found.probabilities) <= limit
    assert (found is NOTHING) == (not occurrences)
    for length in range(1, len(found.tokens) + 1):
        said = list(found.tokens[:length])
        assert any(text[o.start : o.start + length] == said for o in occurrences)
    assert sorted(found.probabilities, reverse=True) == list(found.probabilities)


def test_the_most_frequent_token_is_taken():
    text = [1, 2, 5, 6, 0, 1, 2, 5, 7, 0, 1, 2, 8, 0, 1, 2]
    found = best_continuation(indexed(text).find(text), Calibration(OWN).share, 2, 0.01)
    # [0, 1, 2] was followed by 5 and by 8, once each; [1, 2] by 5 twice and by 8 once
    assert found.tokens[0] == 5
    assert found.kinds[0] == (2, "most")


def test_a_longer_match_counts_for_more_and_grows_with_each_token():
    share = Calibration(OWN).share
    text = [9, *range(10, 20), 3, 4, 5, 6, 1, *range(10, 20)]
    found = best_continuation(indexed(text).find(text), share, 4, 0.01)
    assert found.tokens == (3, 4, 5, 6)
    assert found.kinds == ((8, "once"), (8, "once"), (12, "once"), (12, "once"))
    assert found.probabilities[0] == share((8, "once"))
    assert found.probabilities[1] == pytest.approx(share((8, "once")) ** 2)


def test_shares_follow_what_is_seen():
    calibration, kind = Calibration(OWN), (2, "once")
    assert calibration.share(kind) == pytest.approx(OWN["once"][1])
    rng = random.Random(0)
    for _ in range(3000):
        calibration.saw(kind, rng.random() < 0.9)
    assert calibration.share(kind) == pytest.approx(0.9, abs=0.03)
    for _ in range(6000):
        calibration.saw(kind, False)
    assert calibration.share(kind) < 0.1, "old observations decay"
    assert calibration.share((3, "once")) == pytest.approx(OWN["once"][2])
