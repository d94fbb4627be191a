"""How soon a request wants its answer: deadlines, objectives, methods that failures disable."""

from routing_world import report
from test_policy import route

from router import policy
from router.constraints import Slo
from router.load import Prospect
from router.prompt import Features
from router.replica_loads import ReplicaLoads
from schemas import RoutingTable

BUSY = (report("draft", running=8, waiting=30, free_slots=0, outstanding_tokens=2000),)


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


def test_a_hopeless_deadline_takes_the_soonest_and_a_pin_is_kept(table: RoutingTable) -> None:
    assert route(table, 1, deadline_seconds=-1.0).method == "ngram"
    assert route(table, 1, deadline_seconds=0.001, pinned="naive").reason == "pinned"


def test_a_method_that_keeps_the_objective_is_taken_and_named(table, monkeypatch):
    # On the first cluster draft takes 0.38 s, n-gram 0.57 s and naive 0.62 s.
    monkeypatch.setattr(policy, "CONVERSATION_MARGIN", 1.0)
    stays = route(table, 0, conversation_method="ngram")
    assert stays.reason == "conversation"
    forecasts = Prospect(table, Features(50, 100, 0.0, cluster=0)).under(ReplicaLoads((), table))
    between = (forecasts["draft"].per_token + forecasts["ngram"].per_token) / 2
    moves = route(table, 0, conversation_method="ngram", slo=Slo(token_seconds=between))
    assert (moves.method, moves.reason) == ("draft", "slo")


def test_an_objective_that_changes_nothing_is_no_reason(table: RoutingTable) -> None:
    plain, wished = route(table, 0), route(table, 0, slo=Slo(60.0, 60.0))
    assert (plain.method, plain.reason) == (wished.method, wished.reason)
    pinned = route(table, 0, pinned="naive", slo=Slo(token_seconds=1e-6))
    assert (pinned.method, pinned.reason) == ("naive", "pinned")


def test_where_none_keeps_it_the_nearest_is_taken(table: RoutingTable) -> None:
    names = table.methods
    forecasts = Prospect(table, Features(50, 100, 0.0, cluster=1)).under(ReplicaLoads((), table))
    fastest = min(names, key=lambda name: forecasts[name].per_token)
    assert route(table, 1, slo=Slo(token_seconds=1e-9)).method == fastest
    waits = Prospect(table, Features(50, 100, 0.0, cluster=0)).under(ReplicaLoads(BUSY, table))
    assert waits["draft"].first > waits["ngram"].first
    soon = route(table, 0, BUSY, slo=Slo(first_seconds=waits["draft"].first / 2))
    assert soon.method != "draft"
