"""Deadlines, and methods disabled after failures."""

import pytest
from routing_world import report
from test_policy import route

from router import policy
from router.policy import NoMethodAvailableError
from schemas import RouterConfig, RoutingTable


def test_a_deadline_moves_a_prompt_that_would_otherwise_stay(table, monkeypatch):
    # On the first cluster draft takes 0.38 s, n-gram 0.57 s and naive 0.62 s.
    monkeypatch.setattr(policy, "CONVERSATION_MARGIN", 1.0)
    stays = route(table, 0, conversation_method="ngram", deadline_seconds=0.6)
    assert (stays.method, stays.reason) == ("ngram", "conversation")
    moves = route(table, 0, conversation_method="ngram", deadline_seconds=0.5)
    assert moves.method == "draft"
    assert moves.ranked == ("draft", "ngram", "naive")


def test_a_favourite_that_would_be_late_is_a_constraint(table: RoutingTable) -> None:
    busy = (report("draft", running=8, outstanding_tokens=500),)
    free = route(table, 0, busy)
    assert (free.method, free.reason) == ("ngram", "load")
    predicted = free.predicted_seconds
    between = (predicted["draft"] + predicted["ngram"]) / 2
    late = route(table, 0, busy, deadline_seconds=between)
    assert (late.method, late.reason) == ("ngram", "constraint")


def test_nothing_is_tried_out_on_a_deadline(table: RoutingTable) -> None:
    bold = RouterConfig(exploration=0.5)
    free = [route(table, 0, config=bold, seed=i, explore=True) for i in range(30)]
    assert "exploration" in {d.reason for d in free}
    bound = [
        route(table, 0, config=bold, seed=i, explore=True, deadline_seconds=60.0) for i in range(30)
    ]
    assert {(d.reason, d.propensity) for d in bound} == {("preferred", 1.0)}


def test_a_hopeless_deadline_takes_the_soonest_and_a_pin_is_kept(table: RoutingTable) -> None:
    assert route(table, 1, deadline_seconds=-1.0).method == "ngram"
    assert route(table, 1, deadline_seconds=0.001, pinned="naive").reason == "pinned"


def test_a_method_that_rests_is_passed_over_and_a_pin_on_it_refused(table: RoutingTable) -> None:
    decision = route(table, 1, resting=frozenset({"ngram"}))
    assert (decision.method, decision.reason) == ("draft", "failover")
    assert "ngram" not in decision.ranked
    with pytest.raises(NoMethodAvailableError, match="ngram is disabled after repeated failures"):
        route(table, 1, pinned="ngram", resting=frozenset({"ngram"}))
