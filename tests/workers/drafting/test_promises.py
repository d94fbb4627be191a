"""What is promised of foretold tokens is corrected by what came of those that were verified."""

import random

import pytest

from workers.drafting.lookup.foreteller import Foreteller
from workers.drafting.lookup.past import PastAnswers
from workers.drafting.promises import LEAST, Promises


def test_of_the_highest_expectations_less_comes_and_that_is_learned() -> None:
    """Each says what is true and some noise; the best of many is taken."""
    draw, promises = random.Random(1), Promises()
    promised = came = 0.0
    for step in range(600):
        truths = [draw.uniform(0.3, 0.6) for _ in range(16)]
        said = [truth + draw.uniform(-0.15, 0.15) for truth in truths]
        best = max(range(16), key=said.__getitem__)
        held = draw.random() < truths[best]
        if step >= 200:
            promised += promises.kept * said[best]
            came += held
        promises.saw(said[best], held)
    assert promises.kept < 0.95
    assert promised == pytest.approx(came, rel=0.1)


def test_what_keeps_its_promises_is_believed_and_never_more() -> None:
    promises = Promises()
    assert promises.kept == 1.0
    for _ in range(50):
        promises.saw(2.0, 3)
    assert promises.kept == 1.0
    for _ in range(500):
        promises.saw(2.0, 0)
    assert promises.kept == LEAST


def test_only_verified_tokens_count() -> None:
    """A text in which all goes on as before is foretold as surely as it was, whatever came of
    tokens that nobody verified."""
    one, text = Foreteller(least=0.02, past=PastAnswers()), [1, 2, 3, 4, 5, 6, 1, 2, 3]
    one.begin("text", text, "", greedy=True)
    before = one.foretell("text", 3)
    one.came("text", [9], 0)
    assert one._promises[True].kept == 1.0
    one.foretell("text", 3)
    one.came("text", [9], 2)
    assert one._promises[True].kept < 1.0
    after = one.foretell("text", 3)
    assert after.tokens == before.tokens
    assert after.survival[0] < before.survival[0]
