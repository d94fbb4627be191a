"""What an operator may say about methods and clusters: weights, pins, and to observe only."""

import pytest
import test_policy
from pydantic import ValidationError

from router.policy import NoMethodAvailableError
from schemas import AppConfig, Decision, RouterConfig, RoutingTable


def route(
    table: RoutingTable, cluster: int, limits: dict[str, object] | None = None, **wishes: object
) -> Decision:
    """Explores where it may: the budget is full."""
    config = RouterConfig.model_validate(wishes)
    return test_policy.route(table, cluster, config=config, **{"explore": True} | (limits or {}))


def test_a_weight_makes_a_method_win_or_lose(table: RoutingTable) -> None:
    even = route(table, 0, exploration=0.0)
    assert even.ranked[0] == "draft"
    lighter = route(table, 0, exploration=0.0, weights={"draft": 0.2})
    assert lighter.method == "ngram"
    assert lighter.predicted_seconds == even.predicted_seconds  # what it takes is not what it costs
    assert route(table, 0, exploration=0.0, weights={"naive": 10.0}).method == "naive"


def test_weight_0_is_for_those_who_name_it(table: RoutingTable) -> None:
    retired = {"draft": 0.0}
    for seed in range(20):
        decision = route(table, seed % 2, exploration=0.5, weights=retired)
        assert "draft" not in decision.ranked
    named = route(table, 0, {"pinned": "draft"}, weights=retired)
    assert (named.method, named.reason) == ("draft", "pinned")
    with pytest.raises(NoMethodAvailableError, match="draft cannot serve"):
        route(table, 0, {"healthy": frozenset({"draft"})}, weights=retired)


def test_a_pinned_cluster_has_its_method_while_that_is_healthy(table: RoutingTable) -> None:
    pins = {0: "naive"}
    decision = route(table, 0, pinned_clusters=pins)
    assert (decision.method, decision.reason) == ("naive", "pinned_cluster")
    assert route(table, 1, exploration=0.0, pinned_clusters=pins).method == "ngram"
    sick = {"healthy": frozenset({"draft", "ngram"})}
    assert route(table, 0, sick, exploration=0.0, pinned_clusters=pins).method == "draft"
    named = route(table, 0, {"pinned": "ngram"}, pinned_clusters=pins)
    assert (named.method, named.reason) == ("ngram", "pinned")


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"weights": {"nobody": 1.0}}, "router.weights: 'nobody' is not served"),
        ({"weights": {"naive": -1.0}}, "greater than or equal to 0"),
        ({"weights": {"naive": 0.0}}, "at least one method"),
        ({"pinned_clusters": {0: "nobody"}}, "router.pinned_clusters: 'nobody' is not served"),
        ({"pinned_clusters": {-1: "naive"}}, "greater than or equal to 0"),
    ],
)
def test_wishes_are_checked(wish: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        AppConfig.model_validate({"methods": [{"name": "naive"}], "router": wish})
