"""What a service adds to its engines, found from load tests: the overhead whose simulation of them
comes closest."""

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
"""What has to be alike; tokens a second are the arrivals' where a service keeps up."""
FOREKNOWN = {
    "step_factor": (1.1, 0.15),
    "sequence_seconds": (3e-4, 1.0),
    "stream_seconds": (5e-4, 1.0),
    "crowding": (0.05, 0.7),
    "cores": (1.5, 0.15),
}
"""What services on two cores were found to add, and how far another may be from it, as a standard
deviation of the logarithm: a few load tests do not tell all of these apart."""
REQUEST_SURE = 0.15
"""The same of a request's work, of which the load tests' own hops tell the median."""
SURE = 0.15
"""Of a load test's figures: the same requests at the same moments, asked of a service started anew,
took as differently."""
TRIES = 240
LEAST = 1e-5


@dataclass(frozen=True)
class Calibration:
    """The overhead that was found, and for each load test its figures simulated over served."""

    overhead: Overhead
    ratios: list[dict[str, float]]


def calibrated(
    experiment: Experiment, fleet: Fleet, services: Sequence[Sequence[Served]]
) -> Calibration:
    """The likeliest overhead by the logarithms of simulated over served figures, of all tests that
    each of some services of one kind has answered in turn, and by what is FOREKNOWN. Raises
    InputError where nothing is said of the engines' seconds."""
    told = [test.hops for tests in services for test in tests if test.hops]
    if not told:
        raise InputError("--served: nothing is said there of the engines' seconds; ask a service")
    reply = max(0.0, median(whole - first for hops in told for first, whole in hops))
    # in the calmest test nobody waited for others
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
