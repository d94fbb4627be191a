"""Search for the smallest fleet that meets objectives, by simulation."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ops.load.arrivals import Floats
from ops.load.policies import ONLY, ROUTED
from ops.simulate.experiment import Experiment
from ops.simulate.outcomes import Objectives, Outcomes
from ops.simulate.policies import Fleet
from ops.simulate.runs import Load, jobs_of, outcomes_of
from ops.simulate.world import World

MANY = 1000
"""Replicas by which a replica's capacity is counted."""


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

    shares: see `Fleet`. least: replicas that the rate needs at full
    batches. most: the largest fleet tried. share: of requests that must meet the objectives. unit:
    arrivals [n] with a mean rate of one per second.
    """

    policy: str
    shared: bool
    shares: tuple[float, ...]
    least: int
    most: int
    unit: Floats
    rate: float
    objectives: Objectives
    share: float
    seed: int


def searches_of(experiment: Experiment, demand: Demand) -> list[Search]:
    """Return the searches: routing with all methods or one per replica, and single methods.

    Replicas of one method each are there in proportion to the work of the prompts that each method
    answers at the least cost.
    """
    served = experiment.methods
    ways: list[tuple[str, bool, tuple[float, ...]]] = [(ROUTED, True, ())]
    if len(served) > 1:
        ways += [(ROUTED, False, experiment.shares())]
        ways += [(f"{ONLY}{m}", True, ()) for m in served]
    searches = []
    for policy, shared, shares in ways:
        # With many replicas rounding does not matter: fewer never have more capacity each.
        each = experiment.capacity(Fleet(MANY, shared, shares=shares), policy) / MANY
        least = int(demand.rate / each) + 1
        searches.append(
            Search(
                *(policy, shared, shares, least, demand.most, demand.unit, demand.rate),
                *(demand.objectives, demand.share, demand.seed),
            )
        )
    return searches


def smallest(world: World, search: Search) -> dict[str, Any] | None:
    """Return the figures of the smallest sufficient fleet; None if `most` replicas are too few.

    More replicas are assumed never to do worse.
    """
    bad, good = search.least - 1, search.least
    found = _figures(world, search, good)
    while found["good_share"] < search.share:
        if good >= search.most:
            return None
        bad, good = good, min(2 * good, search.most)
        found = _figures(world, search, good)
    while good - bad > 1:
        middle = (good + bad) // 2
        tried = _figures(world, search, middle)
        if tried["good_share"] < search.share:
            bad = middle
        else:
            good, found = middle, tried
    return found


def _figures(world: World, search: Search, replicas: int) -> dict[str, Any]:
    methods = world.table.methods
    fleet = Fleet(replicas, search.shared, shares=search.shares)
    prompts = world.workload.drawn(len(search.unit), search.seed)
    load = Load(search.unit / search.rate, prompts)
    jobs = jobs_of(search.policy, fleet, methods, load, search.seed)
    outcomes = Outcomes.together([outcomes_of(world, job) for job in jobs])
    hosted = Counter("+".join(names) for names in fleet.layout(methods, search.policy))
    return {
        "replicas": fleet.replicas,
        "fleet": dict(hosted),
        **outcomes.figures(methods, search.objectives),
    }
