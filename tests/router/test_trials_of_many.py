"""Trials of several ingresses that learn together, with a table that lags: simulated, seeded."""

from dataclasses import replace

import numpy as np
import pytest
from routing_world import ACCEPTANCE, STEP, decode_steps, observe
from simulated_service import ACCEPTANCE_NOISE, FEATURES, PREFILL

from router.constraints import Constraints
from router.learner import Learner
from router.policy import choose
from router.trials import Option, Trials
from schemas import RouterConfig, RoutingTable

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
