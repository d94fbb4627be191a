"""An answer's place in its prediction: after every kind of edit, and where nothing agrees."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.drafting.lookup.look_ups import LookUps
from workers.drafting.lookup.past import PastAnswers
from workers.drafting.lookup.prediction import Prediction

LIMIT = 16
PROMPT = [7, 8, 9]


def decode(predicted: list[int], answer: list[int], limit: int = LIMIT) -> list[tuple[int, int]]:
    """Return each step's drafted and accepted tokens, copied from the prediction alone."""
    one, tokens, steps = Prediction(predicted, len(PROMPT)), [*PROMPT, answer[0]], []
    while len(tokens) < len(PROMPT) + len(answer):
        rest = answer[len(tokens) - len(PROMPT) :]
        draft = one.draft(tokens, limit, 0)
        right = 0
        while right < min(len(draft), len(rest) - 1) and draft[right] == rest[right]:
            right += 1
        assert len(draft) <= limit
        assert one.ahead[: len(draft)] == draft
        steps.append((len(draft), right))
        tokens += rest[: right + 1]
    return steps


def test_a_right_prediction_is_copied_with_growing_drafts() -> None:
    text = list(range(100, 200))
    steps = decode(text, text)
    assert [drafted for drafted, _ in steps[:3]] == [4, 14, 16]
    assert all(drafted == right for drafted, right in steps[:-1])


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 90),
    st.integers(0, 12),
    st.lists(st.integers(500, 999), max_size=12),
    st.booleans(),
)
def test_after_an_edit_the_copy_goes_on(at, removed, added, repeats):
    """Whatever is inserted, left out or replaced: it costs its own tokens and a few steps."""
    draw = random.Random(at)
    text = [draw.randrange(12) if repeats and n % 3 else n for n in range(120)]
    answer = text[:at] + added + text[at + removed :]
    steps = decode(text, answer)
    most = len(answer) / LIMIT + len(added) + (14 if repeats else 8)
    assert len(steps) <= most


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 20))
def test_any_answer_can_be_followed(answer: list[int], limit: int) -> None:
    draw = random.Random(len(answer))
    predicted = [draw.randrange(5) for _ in range(30)]
    assert decode(predicted, answer, limit) is not None


def test_a_wrong_prediction_drafts_a_few_tokens_once() -> None:
    steps = decode(list(range(100, 200)), list(range(300, 400)))
    assert sum(drafted for drafted, _ in steps) <= 4


def test_what_was_drafted_and_accepted_is_counted() -> None:
    one = Prediction([1, 2, 3, 4], 0)
    assert one.ahead == []  # nobody looked it up
    assert one.draft([1], 2, 0) == [2, 3]
    assert one.ahead == [2, 3, 4]
    one.count(2, 1)
    assert (one.drafted, one.accepted) == (2, 1)
    assert one.ahead == []


def test_an_answer_that_another_engine_began_is_followed_from_its_beginning() -> None:
    one = Prediction([1, 2, 3, 4, 5, 6], 2)
    assert one.draft([8, 9, 1, 2, 3], 9, 0) == [4, 5, 6]


@pytest.mark.parametrize("right", [True, False])
def test_look_ups_believe_a_prediction_as_long_as_it_is_right(right: bool) -> None:
    text, answer = list(range(100, 300)), list(range(100 if right else 400, 600))
    one, tokens, verified = LookUps(least=0.02, past=PastAnswers()), [7, 8, 9, answer[0]], []
    one.begin("key", tokens, "", greedy=True, prediction=Prediction(text, 3))
    for _ in range(8):
        one.step()
        found = one.look_up("key", LIMIT)
        rest = answer[len(tokens) - 3 :]
        same = [a == b for a, b in zip(found.tokens, rest, strict=False)]
        accepted = same.index(False) if False in same else len(same)
        verified.append((found.expected, accepted))
        tokens += rest[: accepted + 1]
        one.learn("key", rest[: accepted + 1], len(found.tokens))
    expected = [chance for chance, _ in verified]
    if right:
        assert expected[-1] > 14
        assert verified[-1][1] == LIMIT
    else:
        assert not any(expected[2:])
