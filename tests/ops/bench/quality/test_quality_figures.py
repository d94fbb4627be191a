"""Answers, their numbers and their tokens, beside plain decoding's."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from ops.bench.decode.figures import Run
from ops.bench.quality.accuracy import final_number, reference_number, wilson
from ops.bench.quality.divergence import SHARPER, Reading
from ops.bench.quality.figures import GivenAnswer, figures_at


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12 - 8 = 4\n#### 4", 4),
        ("#### 1,234.50 dollars, or 2", Decimal("1234.5")),
        ("She pays $70.", 70),
        ("first 3, then -5", -5),
        ("(7)-5", 5),
        ("12-5", 5),
        ("#### none, though 6 came before", 6),
        ("no number", None),
        ("", None),
    ],
)
def test_the_final_number(text, number):
    assert final_number(text) == number


def test_only_marked_responses_are_references():
    assert reference_number("so 3\n#### 42") == 42
    assert reference_number("so 42") is None
    assert reference_number(None) is None


@given(st.integers(1, 300).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_wilsons_interval(case):
    hits, of = case
    theirs = binomtest(hits, of).proportion_ci(0.95, method="wilson")
    assert wilson(hits, of) == pytest.approx((theirs.low, theirs.high), abs=1e-6)


def test_a_share_of_nothing_is_none():
    with pytest.raises(ValueError, match="0 of 0"):
        wilson(0, 0)


def given_answer(prompt_id, tokens, text="", seconds=1.0, excess=0.0):
    run = Run("m", prompt_id, "math", 0, tuple(tokens), seconds, 0.1, len(tokens) // 2)
    size = len(tokens)
    gains = np.zeros((size, len(SHARPER)))
    gains[:, -1] = excess
    return GivenAnswer(run, text, Reading(np.full(size, 1.0 + excess), np.ones(size), gains))


PLAIN = [
    given_answer("a", range(10), "#### 4"),
    given_answer("b", range(20), "#### 5"),
    given_answer("c", range(10), "nothing"),
]


def test_greedy_answers_are_compared_token_by_token():
    ours = [
        given_answer("a", range(10), "#### 4", seconds=0.5),
        given_answer("b", [0, 1, 2, 3, 4, 9, 6, 7, 8, 9], "#### 6", seconds=0.25),
        given_answer("c", range(8), "nothing", seconds=0.4),
    ]
    found = figures_at(0.0, ours, PLAIN, {"a": Decimal(4), "b": Decimal(6)}, 0)
    assert found["match_rate"] == pytest.approx(1 / 3)
    assert found["tokens_before_divergence"] == pytest.approx((10 + 5 + 8) / 40)
    assert (found["graded"], found["accuracy"], found["same_number"]) == (2, 1.0, 0.5)
    assert found["accuracy_ci95"] == wilson(2, 2)
    assert found["speedup_vs_naive"] == pytest.approx(3 / (1 / 2 + 1 / 2 + 1 / 2))
    assert found["mat"] == pytest.approx(2.0)
    assert found["kl_at_least"] is None


def test_sampled_answers_have_a_distance_and_no_match():
    ours = [given_answer(one.run.prompt_id, one.run.token_ids, excess=0.25) for one in PLAIN]
    found = figures_at(0.8, ours, PLAIN, {}, 0)
    assert found["match_rate"] is None
    assert found["tokens_before_divergence"] is None
    assert found["excess_nats"] == pytest.approx(0.25)
    assert found["nats_over_plain"] == pytest.approx(0.25)
    assert found["kl_at_least"] == pytest.approx(0.25)
    assert found["kl_at_least_ci95"] == pytest.approx((0.25, 0.25))
    assert found["as_if_temperature"] == pytest.approx(0.8 / SHARPER[-1])
    assert (found["graded"], found["accuracy"], found["accuracy_ci95"]) == (0, None, None)


def test_plain_decoding_is_at_no_distance_from_itself():
    found = figures_at(0.0, PLAIN, PLAIN, {"a": Decimal(5)}, 0)
    assert (found["match_rate"], found["tokens_before_divergence"]) == (1.0, 1.0)
    assert (found["excess_nats"], found["nats_over_plain"]) == (0.0, 0.0)
    assert (found["accuracy"], found["same_number"], found["speedup_vs_naive"]) == (0.0, 1.0, 1.0)
