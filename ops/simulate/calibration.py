"""What a service adds to its engines, found from load tests: the overhead whose simulation of them
comes closest."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from scipy.optimize import minimize

from ops.cli.boundary import InputError
from ops.load.arrivals import Floats
from ops.simulate.experiment import Experiment
from ops.simulate.in_turn import in_turn
from ops.simulate.outcomes import Objectives, Outcomes
from ops.simulate.overhead import Overhead, ServedCosts
from ops.simulate.policies import Fleet
from ops.simulate.served import Served

FIGURES = ("latency_mean_s", "latency_p95_s", "ttft_mean_s", "tpot_mean_s")
"""What has to be alike; tokens a second are the arrivals' where a service keeps up."""
FIRST_CORES = (1.0, 1.4, 1.8)
"""From each of these a search begins: it finds the nearest hollow, not the deepest."""
FIRST_TRIES = 80
"""Of each, on the first service alone; the best goes on with all of them."""
TRIES = 160
STRIDES = np.diag((0.3, 0.1, 0.7, 0.7, 0.7, 0.2))
"""How far a search looks at first, in logarithms: of what is foreknown within a tenth, such as how
much longer steps are, less far than of what may be anything."""
LEAST = 1e-5


@dataclass(frozen=True)
class Calibration:
    """The overhead that was found, and for each load test its figures simulated over served."""

    overhead: Overhead
    ratios: list[dict[str, float]]


def calibrated(
    experiment: Experiment, fleet: Fleet, services: Sequence[Sequence[Served]]
) -> Calibration:
    """The overhead with the least squared logarithms of simulated over served figures, over all
    tests that each of some services of one kind has answered in turn. Raises InputError where
    nothing is said of the engines' seconds."""
    hops = [hop for tests in services for test in tests for hop in test.hops]
    if not hops:
        raise InputError("--served: nothing is said there of the engines' seconds; ask a service")
    reply = max(0.0, median(whole - first for first, whole in hops))
    begin = [max(LEAST, median(first for first, _ in hops)), 1.1, 1e-3, 1e-3, 0.05]

    def overhead(logs: Floats) -> Overhead:
        request, factor, sequence, stream, crowding, cores = map(float, np.exp(logs))
        return Overhead(
            request_seconds=request,
            reply_seconds=reply,
            step_factor=factor,
            sequence_seconds=sequence,
            stream_seconds=stream,
            cores=cores,
            crowding=crowding,
        )

    def apart(logs: Floats, answered: Sequence[Sequence[Served]]) -> float:
        found = _ratios(experiment, fleet, answered, overhead(logs))
        return sum(float(np.log(ratio)) ** 2 for one in found for ratio in one.values())

    def nearest(logs: Floats, answered: Sequence[Sequence[Served]], tries: int) -> Any:
        simplex = np.vstack([logs, logs + STRIDES])
        options = {"maxfev": tries, "initial_simplex": simplex}
        return minimize(apart, logs, (answered,), "Nelder-Mead", options=options)

    first = [nearest(np.log([*begin, n]), services[:1], FIRST_TRIES) for n in FIRST_CORES]
    best = overhead(nearest(min(first, key=lambda one: float(one.fun)).x, services, TRIES).x)
    return Calibration(best, _ratios(experiment, fleet, services, best))


def _ratios(
    experiment: Experiment, fleet: Fleet, services: Sequence[Sequence[Served]], tried: Overhead
) -> list[dict[str, float]]:
    return [one for tests in services for one in ratios(experiment, fleet, tests, tried)]


def ratios(
    experiment: Experiment, fleet: Fleet, tests: Sequence[Served], overhead: Overhead
) -> list[dict[str, float]]:
    """Of each load test the simulated FIGURES over the served ones."""
    found = []
    for test, outcomes in zip(tests, simulated(experiment, fleet, tests, overhead), strict=True):
        figures = outcomes.figures(experiment.methods, Objectives())
        found.append({name: figures[name] / test.figures[name] for name in FIGURES})
    return found


def simulated(
    experiment: Experiment,
    fleet: Fleet,
    tests: Sequence[Served],
    overhead: Overhead,
    seed: int = 0,
) -> list[Outcomes]:
    """What becomes of the requests of load tests in turn, under this overhead instead of the
    experiment's. seed: of what routing draws."""
    world = replace(
        experiment.world, overhead=overhead, costs=ServedCosts(experiment.costs, overhead)
    )
    return in_turn(world, fleet, experiment.methods, tests, seed)[0]
