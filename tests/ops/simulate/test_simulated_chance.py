"""How far a load test's figures are chance: the simulation's own, drawn anew."""

from dataclasses import replace

import numpy as np
import pytest

from ops.load.arrivals import poisson
from ops.simulate import chance
from ops.simulate.calibration import simulated
from ops.simulate.chance import interval_of, with_chance
from ops.simulate.experiment import Experiment
from ops.simulate.outcomes import Objectives
from ops.simulate.overhead import NOTHING
from ops.simulate.policies import Fleet
from ops.simulate.runs import Load
from ops.simulate.served import Served, compared
from schemas import AppConfig, MethodDeployment
from tests.ops.simulate.worlds import METHODS, Constant, workload_of, world_of

FLEET = Fleet(2, shared=False)
RATE = 0.1


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    monkeypatch.setattr(chance, "DRAWS", 12)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})


def experiment_of(*steps):
    world = world_of(workload_of(*steps), rows=4, costs=Constant(1.0))
    config = AppConfig(methods=tuple(MethodDeployment(name=name) for name in METHODS))
    return Experiment(config, world, {}, Constant(1.0))


def load_test(experiment, requests, rate=RATE):
    prompts = np.resize(np.arange(len(experiment.world.workload.ids)), requests)
    test = Served("pinned_naive", Load(poisson(requests, 0) / RATE, prompts), {}, [], rate)
    figures = simulated(experiment, FLEET, [test], NOTHING)[0].figures(METHODS, Objectives())
    return replace(test, figures=figures)


def test_what_is_redrawn_makes_the_interval():
    """Answers of 2 and 20 steps: the draw of prompts decides, of alike ones only the arrivals."""
    alike, unlike = experiment_of((10, 10), (10, 10)), experiment_of((2, 2), (20, 20), (5, 5))
    low, high = interval_of(alike, FLEET, load_test(alike, 10), False)["latency_mean_s"]
    assert low == pytest.approx(high)
    low, high = interval_of(alike, FLEET, load_test(alike, 10), True)["latency_mean_s"]
    assert low < high
    fixed = load_test(alike, 10, rate=None)
    low, high = interval_of(alike, FLEET, fixed, True)["tokens_per_s"]
    assert low == pytest.approx(high), "arrivals of a trace are not drawn"
    low, high = interval_of(unlike, FLEET, load_test(unlike, 10), False)["latency_mean_s"]
    assert low < high


def test_more_requests_leave_less_to_chance():
    experiment = experiment_of((2, 2), (20, 20), (5, 5))

    def width(requests):
        found = interval_of(experiment, FLEET, load_test(experiment, requests), True)
        low, high = found["latency_mean_s"]
        return np.log(high / low)

    assert width(400) < width(20) / 2


def test_each_figure_is_judged_beside_its_interval():
    experiment = experiment_of((2, 2), (20, 20), (5, 5))
    test = load_test(experiment, 40)
    served = {**test.figures, "latency_mean_s": 10.0 * test.figures["latency_mean_s"]}
    names = ("tokens_per_s", "latency_mean_s", "latency_p95_s", "ttft_mean_s")
    test = replace(test, figures={name: served[name] for name in names})
    figures = simulated(experiment, FLEET, [test], NOTHING)[0].figures(METHODS, Objectives())
    found = with_chance(experiment, FLEET, test, compared(test, figures))
    assert not found["latency_mean_s"]["inside"]
    assert found["latency_p95_s"]["inside"]
    low, high = found["latency_p95_s"]["prompts_redrawn"]
    assert low <= found["latency_p95_s"]["served"] <= high
    assert found["latency_mean_s"]["slower"] > 1.04
    assert found["latency_mean_s"]["ratio"] == pytest.approx(0.1)
    assert set(found["ttft_mean_s"]) == {"served", "simulated", "ratio"}
