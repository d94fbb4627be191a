"""What is looked up for a text, what followed elsewhere, and with which probability."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from indexes import indexed, texts

from workers.drafting.lookup.look_ups import NOTHING, OWN, Calibration, LookUps, best_continuation
from workers.drafting.lookup.past import PastAnswers

LIMIT = 12


def look_ups(past: PastAnswers | None = None) -> LookUps:
    return LookUps(least=0.02, past=past or PastAnswers())


def decode(
    one: LookUps, key: int, answer: list[int], *, greedy: bool = True, prompt: tuple[int, ...]
) -> list[tuple[float, int]]:
    """Return each step's expected and accepted tokens; all are verified."""
    text = list(prompt)
    one.begin(key, text, "", greedy=greedy)
    said = []
    at = 0
    while at < len(answer) - LIMIT:
        found = one.look_up(key, LIMIT)
        held = 0
        while held < len(found.tokens) and found.tokens[held] == answer[at + held]:
            held += 1
        said.append((found.expected, held))
        emitted = answer[at : at + held + 1]
        text += emitted
        one.learn(key, emitted, len(found.tokens))
        at += len(emitted)
    one.end(key)
    return said


def copied(draw: random.Random, prompt: tuple[int, ...], tokens: int, slip: float) -> list[int]:
    """Pieces of the prompt, each going on until something else comes."""
    answer: list[int] = []
    while len(answer) < tokens:
        at = draw.randrange(len(prompt) - 40)
        while at < len(prompt) and draw.random() > slip:
            answer.append(prompt[at])
            at += 1
        answer.append(draw.randrange(1000, 2000))
    return answer


@pytest.mark.parametrize("slip", [0.5, 0.2, 0.05])
def test_as_many_come_as_are_expected(slip: float) -> None:
    """Of long drafts too, for which every share of a level counts as often as there are levels."""
    draw, one = random.Random(1), look_ups()
    said = []
    for key in range(40):
        prompt = tuple(draw.randrange(300) for _ in range(200))
        said += decode(one, key, copied(draw, prompt, 150, slip), prompt=prompt)
    late = said[len(said) // 2 :]
    expected, came = (sum(column) for column in zip(*late, strict=True))
    assert expected == pytest.approx(came, rel=0.2)
    surest = sorted(late)[-len(late) // 5 :]
    expected, came = (sum(column) for column in zip(*surest, strict=True))
    assert expected == pytest.approx(came, rel=0.2)


def test_answers_at_temperature_0_do_not_speak_for_others() -> None:
    draw = random.Random(2)
    prompt = tuple(range(200))
    asked = {}
    for greedy in (True, False):
        one = look_ups()
        for key in range(20):  # at temperature 0 all goes on as before, above it nothing does
            decode(one, key, copied(draw, prompt, 100, 0.02), prompt=prompt)
            decode(one, -key, copied(draw, prompt, 100, 0.7), greedy=False, prompt=prompt)
        text = [*prompt, 5, 6, 7]
        one.begin("new", text, "", greedy=greedy)
        asked[greedy] = one.look_up("new", LIMIT).probabilities[0]
    assert asked[True] > 0.8 > 0.5 > asked[False]


def test_past_answers_are_believed_less_than_the_text_itself() -> None:
    past = PastAnswers(10**6)
    one = look_ups(past)
    past.add("", [1, 2, 3, 4, 5, 6])
    past.work()
    one.begin("asks", [3, 4], "", greedy=True)
    one.begin("has it", [3, 4, 5, 6, 9, 3, 4], "", greedy=True)
    others, own = one.look_up("asks", LIMIT), one.look_up("has it", 2)
    assert others.tokens == own.tokens == (5, 6)
    assert others.probabilities[0] < own.probabilities[0]


def test_a_text_in_which_look_ups_fail_is_soon_not_believed() -> None:
    """And another, in which they hold, is believed as before."""
    draw, one = random.Random(3), look_ups()
    for key in range(10):
        prompt = tuple(draw.randrange(300) for _ in range(200))
        decode(one, key, copied(draw, prompt, 150, 0.05), prompt=prompt)
    prompt = tuple(draw.randrange(300) for _ in range(200))
    pairs = [token for at in range(60) for token in (prompt[at], 5000 + at)]
    said = decode(one, 100, pairs, prompt=prompt)
    believed = [expected for expected, _ in said if expected]
    assert sum(believed[-10:]) < 0.5 * sum(believed[:10])
    held = decode(one, 101, copied(draw, prompt, 150, 0.05), prompt=prompt)
    assert max(expected for expected, _ in held[:20]) > 1.5


def test_only_verified_tokens_change_the_trust() -> None:
    """The highest expectations are verified, and they are too high."""
    one, text = look_ups(), [1, 2, 3, 4, 5, 6, 1, 2, 3]
    one.begin("text", text, "", greedy=True)
    before = one.look_up("text", 3)
    one.learn("text", [9], 0)
    assert one.trust == 1.0
    for _ in range(2):
        one.look_up("text", 3)
        one.learn("text", [9], 2)
    assert one.trust < 1.0
    after = one.look_up("text", 3)
    assert after.tokens == before.tokens
    assert after.probabilities[0] < before.probabilities[0]


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
