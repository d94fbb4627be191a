"""Favourites of temperature bands: profiled, learned, kept."""

from dataclasses import replace

from routing_world import CENTROIDS, ENCODER, METHODS, make_profile, observe

from router.constraints import Constraints
from router.fit.assign import build_table
from router.fit.profile import Profile
from router.learner import Learner
from router.policy import choose
from router.prompt import Features
from schemas import RouterConfig, RoutingTable

CONFIG = RouterConfig()


def two_temperatures() -> RoutingTable:
    """n-gram is the best of the second cluster at temperature 0; above it nothing can be copied."""
    profile, vectors = make_profile()
    both = replace(profile, rows=(*profile.rows, *at_one(profile).rows))
    return build_table(both, vectors, CENTROIDS, ENCODER)


def decided(table: RoutingTable, cluster: int, temperature: float) -> str:
    asked, limits = Features(20, 128, temperature, cluster=cluster), frozenset(METHODS)
    decision = choose(table, asked, (), Constraints(healthy=limits), CONFIG)
    assert decision.reason == "preferred"
    return decision.method


def test_a_profile_of_two_temperatures_gives_each_band_its_favourite() -> None:
    table = two_temperatures()
    assert [row[0] for row in table.assignment] == ["draft", "ngram"]
    assert [row[2] for row in table.assignment] == ["draft", "draft"]
    assert [decided(table, 1, t) for t in (0.0, 1.0)] == ["ngram", "draft"]


def at_one(profile: Profile) -> Profile:
    """The profile at temperature 1, where nothing can be copied."""
    return replace(
        profile,
        rows=tuple(
            row.model_copy(
                update={"temperature": 1.0}
                | ({"target_steps": 51, "decode_seconds": 0.55} if row.method == "ngram" else {})
            )
            for row in profile.rows
        ),
    )


def test_a_band_learns_its_own_favourite() -> None:
    """n-gram accepts little above temperature 0, and goes on being the favourite at 0."""
    learner = Learner(build_table(*make_profile(), CENTROIDS, ENCODER))
    assert learner.table.assignment[1] == ("ngram",) * 3
    for i in range(40):
        for used, steps in (("ngram", 51), ("draft", 25)):
            seconds = {"ngram": 0.011, "draft": 0.015}[used] * (steps - 1)
            took = {"temperature": 1.0, "target_steps": steps, "decode_seconds": seconds}
            learner.observe([observe(learner.table, f"{used}{i}", used, 1, **took)])
    assert learner.table.assignment[1][0] == "ngram"
    assert learner.table.assignment[1][2] == "draft"
