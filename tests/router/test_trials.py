"""Trials of methods: by whom, how often, and what they are booked at."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_world import ACCEPTANCE, METHODS, STEP, decode_steps, observe
from simulated_service import ACCEPTANCE_NOISE, FEATURES, PREFILL

from router import favourites, policy
from router.constraints import Constraints
from router.learner import Learner
from router.objectives import Slo
from router.policy import choose
from router.prompt import Features
from router.trials import (
    BUDGET_REQUESTS,
    START_REQUESTS,
    Choice,
    ExplorationBudget,
    Option,
    Trials,
    soonest,
)
from schemas import Objective, RouterConfig, RoutingTable

CONFIG = RouterConfig()
PROMPT = Features(prompt_tokens=20, max_tokens=128)
AT_0 = replace(PROMPT, cluster=0)


def budget_of(seconds: float) -> ExplorationBudget:
    budget = ExplorationBudget()
    budget.earn(seconds)
    return budget


def choice(
    options: Sequence[tuple[float, float, float]],
    margin: float,
    share: float,
    budget: ExplorationBudget,
    rng: np.random.Generator,
    objective: Objective = "speedup",
) -> Choice:
    """Choose among options (seconds, error, delay)."""
    config = RouterConfig(exploration=share)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(favourites, "HYSTERESIS", margin)
        return Trials(rng, budget).choose([Option(*one) for one in options], objective, config)


@given(
    methods=st.lists(st.tuples(st.floats(0.05, 50.0), st.floats(0.05, 0.6)), min_size=1, max_size=6)
)
@settings(max_examples=30, deadline=None)
def test_the_soonest_is_who_wins_most_draws(methods: list[tuple[float, float]]) -> None:
    seconds, errors = np.asarray(methods).T
    draws = seconds * np.exp(
        errors * np.random.default_rng(0).standard_normal((100_000, len(methods)))
    )
    wins = np.bincount(draws.argmin(axis=1), minlength=len(methods)) / len(draws)
    chances = soonest(seconds, errors)
    assert chances.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(chances, wins, atol=0.01)


def test_every_choice_is_as_frequent_as_its_propensity_says() -> None:
    options = [(1.0, 0.1, 0.0), (1.1, 0.1, 0.0), (0.97, 0.2, 0.0), (6.0, 0.1, 0.0)]
    draws = 4000
    seen, claimed = np.zeros(4), np.zeros(4)
    for seed in range(draws):
        made = choice(options, 0.0, 0.03, budget_of(1.0), np.random.default_rng(seed))
        seen[made.index] += 1
        claimed[made.index] = made.propensity
    # the last one is not paid for by one second: it is never chosen
    assert seen[3] == 0
    assert (seen[:3] > 0).all()
    assert claimed.sum() == pytest.approx(1.0)
    spread = np.sqrt(claimed * (1.0 - claimed) / draws)
    assert (np.abs(seen / draws - claimed) <= 4.0 * spread).all()


def test_propensities_hold_while_the_budget_fills_and_empties(table: RoutingTable) -> None:
    """Choices that were not made to learn, each weighted by its propensity, stand for all."""
    limits = Constraints(healthy=frozenset(METHODS))
    config = RouterConfig(exploration=0.1)
    weights = []
    for seed in range(300):
        rng, budget = np.random.default_rng(seed), ExplorationBudget()
        for _ in range(10):
            decision = choose(table, AT_0, (), limits, config, Trials(rng, budget))
            weights.append((decision.reason != "exploration") / decision.propensity)
    assert 0.02 < np.mean(np.asarray(weights) == 0.0) < 0.5
    assert np.mean(weights) == pytest.approx(1.0, abs=4 * np.std(weights) / len(weights) ** 0.5)


def test_a_trial_is_booked_at_what_it_cost() -> None:
    """Whoever is tried because it looks sooner than it is, is paid for like any other."""
    budget = budget_of(1.0)
    budget.pay(0.0)
    budget.settle(paid=0.0, took=1.5, first=1.0)
    assert budget.units == pytest.approx(0.5)
    budget.pay(0.3)
    budget.settle(paid=0.3, took=1.1, first=1.0)
    assert budget.units == pytest.approx(0.4)
    for _ in range(5):  # everything takes twice as long as predicted
        budget.first_choice_took(2.0, predicted=1.0)
    budget.settle(paid=0.0, took=2.2, first=1.0)
    assert budget.units == pytest.approx(0.2)
    budget.settle(paid=0.0, took=3.0, first=1.0)
    assert budget.units == pytest.approx(-0.8)
    rng = np.random.default_rng(0)
    made = [choice([(1.0, 0.1, 0.0), (1.0, 0.1, 0.0)], 0.0, 0.01, budget, rng) for _ in range(40)]
    assert {c.index for c in made} == {0}, "debts are paid first"


def test_what_a_prompts_choices_cost_is_booked_once() -> None:
    one, four = budget_of(1.0), budget_of(1.0)
    for budget in (one, four):
        budget.pay(0.3)
    one.settle(paid=0.3, took=1.5, first=1.0)
    for _ in range(4):
        four.settle(paid=0.3, took=1.5, first=1.0, choices=4)
    assert four.units == pytest.approx(one.units)
    assert one.units == pytest.approx(0.5)


def test_a_trial_pays_for_its_wait_beyond_the_first_choices(table: RoutingTable) -> None:
    limits = Constraints(healthy=frozenset(METHODS))
    trial = choose(table, AT_0, (), limits, CONFIG).model_copy(
        update={"method": "ngram", "reason": "exploration", "first_waiting_seconds": 1.5}
    )
    left = []
    for waited in (0.0, 1.5, 4.5):
        trials = Trials(np.random.default_rng(0), budget_of(100.0))
        took = {"queue_seconds": waited, "total_seconds": waited + 1.0}
        answer = observe(table, "a", "ngram", 0, **took)
        trials.settle(table, trial, answer.stats)
        left.append(trials.budget.units)
    assert left[1] > left[2]
    assert left[1] - left[2] == pytest.approx(2.0 * (left[0] - left[1]))


def test_one_answer_that_stalled_does_not_end_learning() -> None:
    budget = budget_of(0.01)
    budget.settle(paid=0.0, took=1000.0, first=1.0)
    for _ in range(int(BUDGET_REQUESTS) + 1):
        budget.earn(0.01)
    assert budget.units > 0.0


@pytest.mark.parametrize("sizes", [(0.3, 0.0003), (0.0003, 0.3)])
def test_a_debt_is_as_large_whatever_request_came_last(sizes: tuple[float, float]) -> None:
    """After a tiny request a trial that had cost 20 s owed 0.03 s."""
    budget = ExplorationBudget()
    for units in sizes * 200:
        budget.earn(units)
    budget.units = 0.0
    budget.settle(paid=0.0, took=21.0, first=1.0)
    assert budget.units == pytest.approx(-BUDGET_REQUESTS * 0.15, rel=0.02)


def test_trials_by_large_requests_are_paid_for() -> None:
    """Of a method that stays a guess. Forgiven by the mean, they took 6.5% of the seconds."""
    trials, config = Trials(np.random.default_rng(0)), RouterConfig(exploration=0.01)
    sizes = np.random.default_rng(1).lognormal(0.0, 1.5, 4000)
    extra = 0.0
    for seconds in sizes.tolist():
        options = [Option(seconds, 0.1, 0.0), Option(seconds, 1.0, 0.0)]
        extra += trials.choose(options, "seconds", config).seconds
    assert extra < 0.03 * sizes.sum()


def test_a_guess_is_tried_on_credit_and_so_often() -> None:
    """Of a method without any answers nothing can be known before it is tried; while none of the
    answers has come, or all of them teach nothing, the credit is used up."""
    rng, budget = np.random.default_rng(0), ExplorationBudget()
    made = [
        choice([(1.0, 0.1, 0.0), (1.0, 0.7, 0.0)], 0.0, 0.01, budget, rng).index for _ in range(200)
    ]
    assert START_REQUESTS < sum(made) <= START_REQUESTS + 3
    assert not any(made[50:100])
    assert budget.units < 0.0


@pytest.mark.parametrize(
    ("limits", "budget"),
    [
        ({"explore": False}, budget_of(100.0)),
        ({"deadline_seconds": 60.0}, budget_of(100.0)),
        ({"slo": Slo(first_seconds=60.0)}, budget_of(100.0)),
        ({"pinned": "draft"}, budget_of(100.0)),
        ({"conversation_method": "ngram"}, budget_of(100.0)),
        ({"conversation_method": "draft"}, budget_of(100.0)),
        ({}, None),
    ],
)
def test_what_may_not_be_used_to_learn_earns_and_pays_nothing(table, limits, budget, monkeypatch):
    before = budget and budget.units
    constraints = Constraints(healthy=frozenset(METHODS), **limits)
    config = RouterConfig(exploration=0.5)
    monkeypatch.setattr(policy, "CONVERSATION_MARGIN", 1.0)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        trials = budget and Trials(rng, budget)
        decision = choose(table, AT_0, (), constraints, config, trials)
        assert decision.reason != "exploration"
        assert (decision.propensity, decision.exploration_seconds) == (1.0, 0.0)
    assert (budget and budget.units) == before


CONFIG = RouterConfig()
LAG = 400


def tried(table: RoutingTable, ingresses: int, requests: int = 800) -> int:
    """Return how many requests try n-gram, which is slow and has no evidence yet.

    Tables are new and answers arrive every LAG requests.
    """
    learner, draws = Learner(table), np.random.default_rng(0)
    trials = [Trials(np.random.default_rng((1, i)), ingresses=ingresses) for i in range(ingresses)]
    count, waiting = 0, []
    for number in range(requests):
        own = trials[int(draws.integers(ingresses))]
        known = learner.table
        limits = Constraints(healthy=frozenset(known.methods))
        decision = choose(known, replace(FEATURES, cluster=0), (), limits, CONFIG, own)
        count += decision.method == "ngram"
        slower = 4.0 if decision.method == "ngram" else 1.0
        deviation = ACCEPTANCE_NOISE * draws.standard_normal()
        steps = decode_steps(ACCEPTANCE[decision.method][0], deviation)
        seconds = steps * STEP[decision.method] * slower
        measured = {
            "target_steps": 1 + steps,
            "decode_seconds": seconds,
            "total_seconds": PREFILL + seconds,
        }
        answer = observe(known, str(number), decision.method, 0, **measured)
        waiting.append((own, decision, answer))
        if len(waiting) == LAG:
            learner.observe(answer for *_, answer in waiting)
            for own, decision, answer in waiting:
                own.settle(learner.table, decision, answer.stats)
            waiting.clear()
    return count


@pytest.mark.parametrize("ingresses", [8, 32])
def test_more_ingresses_try_a_method_no_more_often(table: RoutingTable, ingresses: int) -> None:
    """32 ingresses tried it 171 times where one tried it 15 times."""
    nothing = {}
    for name in ("acceptance_tokens", "acceptance_steps"):
        nothing[name] = getattr(table, name).copy()
        nothing[name][:, table.methods.index("ngram")] = 0.0
    unknown = table.model_copy(update=nothing | {"assignment": (("draft",) * 3,) * 2})
    once = tried(unknown, 1)
    assert 5 <= once <= 25
    assert 1 <= tried(unknown, ingresses) <= once


def test_a_budget_smaller_than_a_guess_still_pays_for_one_in_time() -> None:
    config = RouterConfig(exploration=0.004)
    trials = Trials(np.random.default_rng(0), ingresses=8)
    options = [Option(1.0, 0.1, 0.0), Option(1.0, 1.0, 0.0)]
    tried = [trials.choose(options, "seconds", config).index for _ in range(4000)]
    assert 5 <= sum(tried[-2000:]) <= 10
