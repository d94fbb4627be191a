"""How far the figures of a load test are chance, and how far the machine's pace: what is simulated
with other draws, and on a machine that is a little slower."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ops.load.arrivals import poisson
from ops.simulate.experiment import Experiment
from ops.simulate.outcomes import Objectives, Outcomes
from ops.simulate.overhead import ServedCosts
from ops.simulate.policies import Fleet
from ops.simulate.runs import Job, Load, jobs_of, on_all_cores, outcomes_of
from ops.simulate.served import JUDGED, Served
from ops.simulate.service import World

DRAWS = 40
INTERVAL = (5.0, 95.0)
"""Percentiles."""
SLOWER = 1.05
"""Difference between two runs of a service on the same machine and day."""


def with_chance(
    experiment: Experiment, fleet: Fleet, test: Served, compared: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, Any]]:
    """Add the effect of chance to a comparison of served and simulated figures.

    Each JUDGED figure gets intervals over redrawn prompts, and over redrawn prompts and arrivals,
    whether the served value lies in the first one, and the simulated value if all work is SLOWER.
    """
    intervals = {
        name: interval_of(experiment, fleet, test, arrivals)
        for name, arrivals in (("prompts_redrawn", False), ("all_redrawn", True))
    }
    late = slower(experiment, fleet, test, {n: one["simulated"] for n, one in compared.items()})
    found: dict[str, dict[str, Any]] = {name: dict(one) for name, one in compared.items()}
    for name in JUDGED:
        low, high = intervals["prompts_redrawn"][name]
        found[name] |= {key: one[name] for key, one in intervals.items()}
        found[name]["inside"] = low <= found[name]["served"] <= high
        found[name]["slower"] = late[name]
    return found


def interval_of(
    experiment: Experiment, fleet: Fleet, test: Served, arrivals: bool
) -> dict[str, tuple[float, float]]:
    """Return INTERVAL of each JUDGED figure over DRAWS simulated load tests.

    Prompts are drawn anew as `specadapt loadtest` draws them. arrivals: also redraw Poisson
    arrivals.
    """
    loads = [_redrawn(experiment, test, arrivals, seed) for seed in range(DRAWS)]
    found = list(_simulated(experiment.world, experiment, fleet, test.policy, loads))
    return {name: _interval([figures[name] for figures in found]) for name in JUDGED}


def slower(
    experiment: Experiment, fleet: Fleet, test: Served, simulated: Mapping[str, float]
) -> dict[str, float]:
    """Return each JUDGED figure over `simulated` if all work takes SLOWER times as long."""
    world = experiment.world
    overhead = world.overhead
    changed = overhead.model_copy(
        update={
            name: getattr(overhead, name) * SLOWER
            for name in (
                *("request_seconds", "reply_seconds", "step_factor"),
                *("sequence_seconds", "stream_seconds"),
            )
        }
    )
    late = replace(world, overhead=changed, costs=ServedCosts(experiment.costs, changed))
    [found] = _simulated(late, experiment, fleet, test.policy, [test.load])
    return {name: found[name] / simulated[name] for name in JUDGED}


def _redrawn(experiment: Experiment, test: Served, arrivals: bool, seed: int) -> Load:
    count = len(test.load.arrivals)
    moments = test.load.arrivals
    if arrivals and test.rate is not None:
        moments = poisson(count, (seed, 10)) / test.rate
    order = np.random.default_rng((seed, 11)).permutation(len(experiment.world.workload.ids))
    return Load(moments, np.resize(order, count))


def _simulated(
    world: World, experiment: Experiment, fleet: Fleet, policy: str, loads: Sequence[Load]
) -> Iterator[dict[str, float]]:
    """The figures of a policy under each load, its routing drawn anew."""
    methods = experiment.methods
    jobs = [jobs_of(policy, fleet, methods, load, seed) for seed, load in enumerate(loads)]
    every: list[Job] = [job for one in jobs for job in one]
    outcomes = iter(on_all_cores(world, outcomes_of, every))
    for one in jobs:
        together = Outcomes.together([next(outcomes) for _ in one])
        yield together.figures(methods, Objectives())


def _interval(values: Sequence[float]) -> tuple[float, float]:
    low, high = np.percentile(values, INTERVAL)
    return float(low), float(high)
