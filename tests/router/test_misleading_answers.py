"""What single answers and long prompts do to the prompts that come after them: simulated, seeded.

The prompts are those of the first cluster, whose favourite is draft. Figures in the comments are
from before and after the rule that each test is about.
"""

from dataclasses import replace

import numpy as np
import pytest
from routing_world import ACCEPTANCE, STEP, observe
from simulated_service import FEATURES, SimulatedService

from router.constraints import Constraints
from router.policy import choose
from router.trials import Trials
from schemas import RouterConfig

CONFIG = RouterConfig()
BEST = {0: "draft", 1: "ngram"}
LONG = 4000


@pytest.mark.parametrize("seconds", [pytest.param(60.0, marks=pytest.mark.slow), 300.0])
def test_one_pause_costs_later_prompts_next_to_nothing(offline, seconds):
    """Of 400 requests the mean cost 5.8% and 18.4% more, and 1.0% with the rule."""
    lost = []
    for seed in range(3):
        service = SimulatedService(offline, CONFIG, seed)
        service.run(100, cluster=0)
        service._observe(service._choose(0), 24, seconds)
        run = service.run(200, cluster=0)
        lost.append(run.taken() / run.of(BEST) - 1.0)
    assert np.mean(lost) < 0.03


@pytest.mark.parametrize("growth", [{"draft": 2.5}, {"naive": 2.5, "draft": 2.5, "ngram": 2.5}])
def test_long_prompts_leave_the_short_ones_of_other_clusters_alone(offline, growth):
    """The steps of the second cluster's long prompts grow with the context, which the profile did
    not measure. Up to 100% of the short prompts went wrong and took 52% longer; 1% go wrong."""
    draw, requests = np.random.default_rng(7), 300
    trials = Trials(np.random.default_rng(8))
    service = SimulatedService(offline, CONFIG, 0)
    wrong = []
    for i in range(requests):
        cluster = i % 2
        prompt = LONG if cluster and draw.random() < 0.5 else 20
        table = service.learner.table
        features = replace(FEATURES, cluster=cluster, prompt_tokens=prompt)
        limits = Constraints(healthy=frozenset(table.methods))
        # The long prompts go where the short ones do.
        pinned = replace(limits, pinned="draft") if cluster else limits
        decision = choose(table, features, (), pinned, CONFIG, trials)
        method = decision.method
        steps = round(60 / ACCEPTANCE[method][0])
        longer = 1.0 + growth.get(method, 0.0) * max(0, prompt - 512) / 1000
        seconds = steps * STEP[method] * longer * float(np.exp(0.1 * draw.standard_normal()))
        measured = {
            "target_steps": 1 + steps,
            "decode_seconds": seconds,
            "total_seconds": 0.02 + seconds,
            "prompt_tokens": prompt,
            "context_length": prompt + 61,
        }
        answer = observe(table, str(i), method, cluster, **measured)
        trials.settle(table, decision, answer.stats)
        service.learner.observe([answer])
        if not cluster:
            wrong.append(method != "draft")
    assert np.mean(wrong) < 0.05
    table = service.learner.table
    assert table.live.step_ratio[1] == pytest.approx(1.0, abs=0.15)
    assert table.live.context_slope[1] > 0.5
