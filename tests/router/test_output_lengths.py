"""How long answers are: of a cluster, and where they are cut off."""

import numpy as np
import pytest
from routing_world import observe

from router import learner as learning
from router.learner import Learner
from router.predict import emitted_output, expected_output
from schemas import RoutingTable


def test_how_long_answers_are_is_learned_by_cluster(table: RoutingTable) -> None:
    learner = Learner(table)
    before = [expected_output(table, k) for k in (0, 1)]
    learner.observe(observe(table, f"o{i}", "ngram", 1, output_tokens=200) for i in range(100))
    assert expected_output(learner.table, 1) > 160
    assert expected_output(learner.table, 0) < before[0] + 0.5 * (200 - before[0])


def test_how_long_answers_would_be_is_learned_from_those_that_are_cut_off(table, monkeypatch):
    """Lengths of 100 tokens in the mean, exponentially distributed, cut off at 50."""
    monkeypatch.setattr(learning, "HALF_LIFE", 1e6)
    learner = Learner(table)
    lengths = np.random.default_rng(0).exponential(100.0, 3000)
    seen = [(int(max(1.0, min(n, 50.0))), "stop" if n < 50.0 else "length") for n in lengths]
    learner.observe(
        observe(table, str(i), "ngram", 1, output_tokens=tokens, finish_reason=finish)
        for i, (tokens, finish) in enumerate(seen)
    )
    assert expected_output(learner.table, 1) == pytest.approx(100.0, rel=0.1)


def test_answers_cut_short_do_not_shorten_what_is_expected(table: RoutingTable) -> None:
    learner = Learner(table)
    cut = {"output_tokens": 4, "finish_reason": "length"}
    learner.observe(observe(table, f"o{i}", "ngram", 1, **cut) for i in range(100))
    before = expected_output(table, 1)
    assert before <= expected_output(learner.table, 1) < 1.5 * before
    # what a place in a batch is taken for, though, is what they had
    assert emitted_output(learner.table, 1) < 0.5 * before


def test_answers_that_may_not_end_say_nothing_of_how_long_answers_are(table: RoutingTable) -> None:
    """Fifty of them, of 2,000 tokens, taught that a cluster's answers hardly ever end."""
    learner = Learner(table)
    cut = {"output_tokens": 2000, "finish_reason": "length"}
    made = [observe(table, f"o{i}", "ngram", 1, **cut) for i in range(50)]
    learner.observe(answer.model_copy(update={"free_to_end": False}) for answer in made)
    assert expected_output(learner.table, 1) == expected_output(table, 1)
    assert emitted_output(learner.table, 1) == emitted_output(table, 1)
    assert learner.table.live.steps[1].sum() > 0.0, "their acceptance counts"


def test_one_huge_answer_does_not_lift_what_is_expected_of_all(table: RoutingTable) -> None:
    before = expected_output(table, 1)
    for finish in ("stop", "length"):
        learner = Learner(table)
        huge = observe(table, "a", "ngram", 1, output_tokens=100_000, finish_reason=finish)
        learner.observe([huge])
        assert before < expected_output(learner.table, 1) < 1.5 * before


def test_a_tail_of_long_answers_counts_in_full(table: RoutingTable) -> None:
    """Limited to four expected lengths each, they taught 48 tokens here instead of 227."""
    learner = Learner(table)
    lengths = np.random.default_rng(0).choice((30, 2000), size=1500, p=(0.9, 0.1))
    sent = enumerate(lengths.tolist())
    learner.observe(observe(table, f"o{i}", "ngram", 1, output_tokens=n) for i, n in sent)
    recent = lengths[-500:].mean()
    assert expected_output(learner.table, 1) == pytest.approx(recent, rel=0.25)
