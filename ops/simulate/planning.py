"""Search for the smallest fleet that meets objectives, by simulation."""

from dataclasses import dataclass
from typing import Any

from ops.load.arrivals import Floats
from ops.load.policies import ONLY, ROUTED
from ops.simulate.experiment import Experiment
from ops.simulate.outcomes import Objectives, Outcomes
from ops.simulate.policies import Fleet
from ops.simulate.runs import Load, jobs_of, outcomes_of
from ops.simulate.service import World


@dataclass(frozen=True)
class Demand:
    """The load and objectives of a plan; see `Search` for the fields."""

    unit: Floats
    rate: float
    objectives: Objectives
    share: float
    most: int
    seed: int


@dataclass(frozen=True)
class Search:
    """A way to serve: a policy on replicas that host all methods (`shared`) or one each.

    step: the number of replicas is a multiple of it. least: replicas that the rate needs at full
    batches. most: the largest fleet tried. share: of requests that must meet the objectives. unit:
    arrivals [n] with a mean rate of one per second.
    """

    policy: str
    shared: bool
    step: int
    least: int
    most: int
    unit: Floats
    rate: float
    objectives: Objectives
    share: float
    seed: int


def searches_of(experiment: Experiment, demand: Demand) -> list[Search]:
    """Return the searches: routing with all methods or one per replica, and single methods."""
    served = experiment.methods
    ways = [(ROUTED, True)]
    if len(served) > 1:
        ways += [(ROUTED, False), *((f"{ONLY}{m}", True) for m in served)]
    searches = []
    for policy, shared in ways:
        step = 1 if shared else len(served)
        each = experiment.capacity(Fleet(step, shared), policy) / step
        least = max(step, int(demand.rate / each) + 1)
        searches.append(
            Search(
                *(policy, shared, step, least, demand.most, demand.unit, demand.rate),
                *(demand.objectives, demand.share, demand.seed),
            )
        )
    return searches


def smallest(world: World, search: Search) -> dict[str, Any] | None:
    """Return the figures of the smallest sufficient fleet; None if `most` replicas are too few.

    More replicas are assumed never to do worse.
    """
    bad, good = search.least // search.step - 1, max(1, -(-search.least // search.step))
    found = _figures(world, search, good)
    while found["good_share"] < search.share:
        if good * search.step >= search.most:
            return None
        bad, good = good, min(2 * good, search.most // search.step)
        found = _figures(world, search, good)
    while good - bad > 1:
        middle = (good + bad) // 2
        if middle * search.step < search.least:
            bad = middle
            continue
        tried = _figures(world, search, middle)
        if tried["good_share"] < search.share:
            bad = middle
        else:
            good, found = middle, tried
    return found


def _figures(world: World, search: Search, steps: int) -> dict[str, Any]:
    methods = world.table.methods
    fleet = Fleet(steps * search.step, search.shared)
    prompts = world.workload.drawn(len(search.unit), search.seed)
    load = Load(search.unit / search.rate, prompts)
    jobs = jobs_of(search.policy, fleet, methods, load, search.seed)
    outcomes = Outcomes.together([outcomes_of(world, job) for job in jobs])
    return {"replicas": fleet.replicas, **outcomes.figures(methods, search.objectives)}
