"""What serves keeps and leaves out what it can; it decides as the plain definition does."""

from dataclasses import replace
from typing import Any

import numpy as np
import plain_policy as plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_world import CENTROIDS, ENCODER, METHODS, make_profile

from router import candidates, favourites, policy, predict
from router.constraints import Constraints
from router.fit.assign import build_table
from router.policy import NoMethodAvailableError, choose
from router.prompt import Features
from router.trials import Trials
from schemas import Decision, LoadReport, RouterConfig, RoutingTable

MADE = build_table(*make_profile(noise=0.2, spread=0.3), CENTROIDS, ENCODER)
NEARLY = {"predicted_seconds", "propensity", "exploration_seconds", "first_waiting_seconds"}
"""Of a decision what is alike but for rounding; the rest is the same."""


@st.composite
def tables(draw: st.DrawFn) -> RoutingTable:
    """The made-up world's after some answers, on a machine of another pace."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    answers = draw(st.sampled_from((0.0, 2.0, 200.0)))
    steps = answers * 32.0 * rng.random(MADE.live.steps.shape)
    spread = draw(st.sampled_from((0.0, 0.3, 1.0)))
    ratio = np.exp(spread * rng.standard_normal(len(METHODS)))
    learned = MADE.with_live(
        steps=steps,
        tokens=steps * (1.0 + 3.0 * rng.random(steps.shape)),
        step_ratio=ratio,
        batch_ratio=np.exp(spread * rng.standard_normal(len(METHODS))),
        step_weight=answers * rng.random(len(METHODS)),
        prefill_ratio=ratio[::-1].copy(),
    )
    return learned.model_copy(
        update={
            "objective": draw(st.sampled_from(("speedup", "seconds"))),
            "regression_mean": rng.random((2, len(METHODS))),
        }
    )


@st.composite
def reports(draw: st.DrawFn) -> LoadReport:
    hosted = draw(st.sampled_from([(name,) for name in METHODS] + [METHODS]))
    running = draw(st.dictionaries(st.sampled_from(hosted), st.integers(0, 4)))
    return LoadReport(
        replica="r",
        methods=hosted,
        running=sum(running.values()),
        waiting=draw(st.sampled_from((0, 0, 0, 1, 5))),
        running_by_method=running,
        outstanding_tokens=draw(st.integers(0, 400)),
        free_slots=draw(st.sampled_from((0, 100, 10_000))),
        healthy=draw(st.sampled_from((True, True, True, False))),
        time=0.0,
    )


def decided(
    table: RoutingTable, cluster: int, features: Features, loads: list[LoadReport], seed: int
) -> tuple[list[Decision | str], float]:
    """Decide several prompts one after the other; return what is left of the budget too."""
    trials, found = Trials(np.random.default_rng(seed)), []
    features = replace(features, cluster=cluster)
    config = RouterConfig(exploration=0.2)
    for _ in range(4):
        constraints = Constraints(healthy=frozenset(METHODS))
        try:
            found.append(choose(table, features, loads, constraints, config, trials))
        except NoMethodAvailableError as error:
            found.append(str(error))
    return found, trials.budget.units


def values(decision: Decision | str) -> dict[str, Any]:
    return {"error": decision} if isinstance(decision, str) else decision.model_dump()


@given(
    tables(),
    st.integers(-1, 1),
    st.builds(
        Features,
        st.integers(1, 600),
        st.integers(1, 300),
        st.sampled_from((0.0, 0.5, 1.0)),
        st.dictionaries(st.sampled_from(METHODS), st.floats(-1.0, 2.0)),
    ),
    st.lists(reports(), max_size=8),
    st.integers(0, 2**32),
)
@settings(max_examples=100, deadline=None)
def test_decisions_are_those_of_the_plain_definition(
    table: RoutingTable, cluster: int, features: Features, loads: list[LoadReport], seed: int
) -> None:
    found, left = decided(table, cluster, features, loads, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "Prospect", plain.Prospect)
        patch.setattr(policy, "obstacles_of", plain.obstacles_of)
        patch.setattr(Trials, "choose", plain.choose)
        meant, meant_left = decided(table, cluster, features, loads, seed)
    assert left == pytest.approx(meant_left, rel=1e-9, abs=1e-9)
    for one, other in zip(map(values, found), map(values, meant), strict=True):
        for name in one.keys() & NEARLY:
            assert one.pop(name) == pytest.approx(other.pop(name), rel=1e-6, abs=2e-6)
        assert one == other


@given(
    tables(),
    st.integers(-1, 1),
    st.builds(Features, st.integers(1, 600), st.integers(1, 300), st.sampled_from((0.0, 0.5, 1.0))),
    st.lists(reports(), max_size=8),
    st.integers(0, 2**32),
)
@settings(max_examples=100, deadline=None)
def test_a_prompt_at_deviation_0_is_decided_as_its_cluster(
    table: RoutingTable, cluster: int, features: Features, loads: list[LoadReport], seed: int
) -> None:
    mean = dict(zip(METHODS, table.regression_mean[max(0, cluster)].tolist(), strict=True))
    found, left = decided(table, cluster, replace(features, predicted=mean), loads, seed)
    found = [
        one if isinstance(one, str) else one.model_copy(update={"foretold": {}}) for one in found
    ]
    assert (found, left) == decided(table, cluster, features, loads, seed)


@given(tables())
@settings(max_examples=50, deadline=None)
def test_what_favourites_are_compared_by(table: RoutingTable) -> None:
    np.testing.assert_allclose(favourites.typical_seconds(table), plain.typical_seconds(table))


@given(tables(), st.floats(0.5, 20.0), st.floats(1.0, 2000.0))
@settings(max_examples=100, deadline=None)
def test_step_times_are_bilinear(table: RoutingTable, batch: float, context: float) -> None:
    times = predict.StepTimes(table, context)
    found = [times.of(m, batch) for m in range(len(METHODS))]
    np.testing.assert_allclose(found, plain.step_seconds(table, batch, context))
    assert times.mixed({0: 1, 2: 3}, batch) == pytest.approx((found[0] + 3 * found[2]) / 4)
