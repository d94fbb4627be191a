"""Calibration: the overhead whose simulation of load tests comes closest to the tests."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from scipy.optimize import minimize

from ops.harness.boundary import InputError
from ops.load.arrivals import Floats
from ops.simulate.experiment import Experiment
from ops.simulate.outcomes import Objectives, Outcomes
from ops.simulate.overhead import Overhead, ServedCosts
from ops.simulate.policies import Fleet
from ops.simulate.served import Served, in_turn

FIGURES = ("latency_mean_s", "latency_p95_s", "ttft_mean_s", "tpot_mean_s")
"""Figures that must agree. Tokens per second follow from the arrivals."""
FOREKNOWN = {
    "step_factor": (1.1, 0.15),
    "sequence_seconds": (3e-4, 1.0),
    "stream_seconds": (5e-4, 1.0),
    "crowding": (0.05, 0.7),
    "cores": (1.5, 0.15),
}
"""Prior of each parameter: its value on services with two cores, and the standard deviation of its
logarithm. A few load tests cannot tell all parameters apart."""
REQUEST_SURE = 0.15
"""The standard deviation of a request's work, whose median the load tests tell."""
SURE = 0.15
"""The standard deviation of a load test's figures between restarts of a service."""
TRIES = 240
LEAST = 1e-5


@dataclass(frozen=True)
class Calibration:
    """The estimated overhead, and each load test's figures, simulated over served."""

    overhead: Overhead
    ratios: list[dict[str, float]]


def calibrated(
    experiment: Experiment, fleet: Fleet, services: Sequence[Sequence[Served]]
) -> Calibration:
    """Estimate the overhead with the highest posterior likelihood.

    Compares the logarithms of simulated and served figures of all load tests; each service answered
    its tests in turn. FOREKNOWN is the prior. Raises InputError if the tests have no engine times.
    """
    told = [test.hops for tests in services for test in tests if test.hops]
    if not told:
        raise InputError(
            "--served: the files have no engine times; run load tests of a SpecAdapt service"
        )
    reply = max(0.0, median(whole - first for hops in told for first, whole in hops))
    # in the test with the lowest load, no request waited for others
    request = max(LEAST, min(median(first for first, _ in hops) for hops in told))
    known = {"request_seconds": (request, REQUEST_SURE), **FOREKNOWN}
    usual, sure = np.log([value for value, _ in known.values()]), [s for _, s in known.values()]

    def overhead(logs: Floats) -> Overhead:
        found = dict(zip(known, map(float, np.exp(logs)), strict=True))
        return Overhead(reply_seconds=reply, **found)

    def apart(logs: Floats) -> float:
        found = _ratios(experiment, fleet, services, overhead(logs))
        seen = sum(float(np.log(ratio)) ** 2 for one in found for ratio in one.values())
        return seen / SURE**2 + float(np.square((logs - usual) / sure).sum())

    simplex = np.vstack([usual, usual + np.diag(sure)])
    options = {"maxfev": TRIES, "initial_simplex": simplex}
    best = overhead(minimize(apart, usual, method="Nelder-Mead", options=options).x)
    return Calibration(best, _ratios(experiment, fleet, services, best))


def _ratios(
    experiment: Experiment, fleet: Fleet, services: Sequence[Sequence[Served]], tried: Overhead
) -> list[dict[str, float]]:
    return [one for tests in services for one in ratios(experiment, fleet, tests, tried)]


def ratios(
    experiment: Experiment, fleet: Fleet, tests: Sequence[Served], overhead: Overhead
) -> list[dict[str, float]]:
    """Return the simulated FIGURES over the served ones, by load test."""
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
    """Simulate load tests in turn under this overhead. seed: of the router's random choices."""
    world = replace(
        experiment.world, overhead=overhead, costs=ServedCosts(experiment.costs, overhead)
    )
    return in_turn(world, fleet, experiment.methods, tests, seed)
