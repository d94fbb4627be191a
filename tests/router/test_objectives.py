"""How fast a request wishes its answer to be."""

from routing_world import report
from test_policy import route

from router import policy
from router.load import Prospect
from router.objectives import Slo
from router.prompt import Features
from router.replica_loads import ReplicaLoads
from schemas import RouterConfig, RoutingTable

BUSY = (report("draft", running=8, waiting=30, free_slots=0, outstanding_tokens=2000),)


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


def test_nothing_is_tried_out_with_an_objective(table: RoutingTable) -> None:
    bold = RouterConfig(exploration=0.5)
    made = [
        route(table, 0, config=bold, seed=i, explore=True, slo=Slo(first_seconds=60.0))
        for i in range(30)
    ]
    assert {(d.reason, d.propensity) for d in made} == {("preferred", 1.0)}
