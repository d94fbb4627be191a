"""Which method answers a prompt, and why.

Predicted seconds = waiting for a place + prefill + decode steps x seconds per step at the batch
size that the sequence will join. The cluster's preferred method answers until another method is
better by HYSTERESIS. Under load that is the one that costs all requests together the fewest
seconds. A request that may be used to learn can go elsewhere, if a budget pays for it
(`router.trials`).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from router import favourites
from router.candidates import Candidate, candidates_of
from router.constraints import Constraints, obstacles_of, why_not
from router.objectives import fast_enough, in_time
from router.prompt import Features
from router.replica_loads import ReplicaLoads
from router.trials import Option, Trials
from schemas import Decision, LoadReport, Reason, RouterConfig, RoutingTable

POLICY = "predicted_seconds"

CONVERSATION_MARGIN = 0.15
"""Least advantage for which a conversation leaves the method of its last turn."""

TEACHING_REASONS = ("preferred", "load", "constraint", "failover", "starting")
"""Reasons of decisions that exploration may change."""


class NoMethodAvailableError(RuntimeError):
    """No method may answer this request; the message gives the obstacle of each."""


class _Chosen(NamedTuple):
    """The choice before exploration, its reason, and the preferred method."""

    method: str
    reason: Reason
    favourite: str


def choose(
    table: RoutingTable,
    features: Features,
    loads: Sequence[LoadReport] | ReplicaLoads,
    constraints: Constraints,
    config: RouterConfig,
    trials: Trials | None = None,
) -> Decision:
    """Route one prompt. Nothing is tried out without `trials`.

    Reasons: preferred (the cluster's preferred method); load (another method, because of queues and
    batches); exploration; constraint (the preferred method may not serve this request or would miss
    its deadline); prediction (the preferred method does not copy from the predicted response);
    failover (the preferred method is not healthy or is disabled after failures); starting (the
    preferred method has no replica yet); pinned; pinned_cluster; conversation (the last turn's
    method instead of the preferred method); slo (another method, because it keeps the request's
    objectives or misses them least); degraded (no cluster). Raises NoMethodAvailableError.
    """
    loads = loads if isinstance(loads, ReplicaLoads) else ReplicaLoads(loads, table)
    obstacles = obstacles_of(table, loads, constraints, config)
    names = [constraints.pinned] if constraints.pinned is not None else list(table.methods)
    admissible = [n for n in names if n in table.methods and obstacles[n] is None]
    if not admissible:
        why = [why_not(table, n, constraints, obstacles) for n in names]
        raise NoMethodAvailableError("; ".join(why))

    candidates = candidates_of(table, features, loads, constraints, config)
    for name, obstacle in obstacles.items():
        candidates[name].obstacle = obstacle
    allowed = [candidates[n] for n in admissible]
    timely = in_time(allowed, constraints.deadline_seconds)
    for one in allowed:
        if one not in timely:
            one.obstacle = "constraint"
    timely = _copying(timely, constraints)
    chosen = _greedy(table, features, candidates, timely, constraints, config)
    if constraints.slo:
        fast = fast_enough(timely, constraints.slo)
        wished = _greedy(table, features, candidates, fast, constraints, config)
        chosen = chosen if wished.method == chosen.method else wished._replace(reason="slo")
    method, reason, favourite = chosen
    ranked = sorted(allowed, key=lambda one: (one.name != method, one.predicted))
    propensity, extra, waiting = 1.0, 0.0, 0.0
    explorable = reason in TEACHING_REASONS and len(ranked) > 1
    explorable &= constraints.explore and constraints.deadline_seconds is None
    explorable &= method != constraints.conversation_method and not constraints.slo
    if explorable and trials is not None and config.exploration > 0.0:
        options = [Option(one.loaded, one.error, one.delay) for one in ranked]
        made = trials.choose(options, table.objective, config)
        method, propensity, extra = ranked[made.index].name, made.propensity, made.seconds
        if made.index > 0:
            reason, waiting = "exploration", ranked[0].waiting
    return Decision(
        method=method,
        ranked=tuple(one.name for one in ranked),
        cluster=features.cluster,
        reason=reason,
        propensity=propensity,
        policy=POLICY,
        fit_id=table.fit_id,
        table_version=table.version,
        predicted_seconds={one.name: round(one.predicted, 6) for one in ranked},
        predicted_acceptance=dict(features.predicted),
        exploration_seconds=extra,
        first_waiting_seconds=waiting,
        starts=next((one for one in (method, favourite) if one in constraints.startable), None),
    )


def _copying(timely: list[Candidate], constraints: Constraints) -> list[Candidate]:
    """Return the candidates that copy from the predicted response; all if none does and runs."""
    copying = [
        one for one in timely if one.name in constraints.copying - constraints.startable.keys()
    ]
    for one in timely if copying else ():
        if one not in copying:
            one.obstacle = "prediction"
    return copying or timely


def _greedy(
    table: RoutingTable,
    features: Features,
    candidates: Mapping[str, Candidate],
    timely: Sequence[Candidate],
    constraints: Constraints,
    config: RouterConfig,
) -> _Chosen:
    """Choose among the timely candidates without exploring."""
    if constraints.pinned is not None:
        return _Chosen(constraints.pinned, "pinned", constraints.pinned)
    named = {one.name: one for one in timely}
    running = _running(timely, constraints)
    soonest = min(running, key=lambda one: one.loaded)
    pinned = named.get(config.pinned_clusters.get(features.cluster, ""))
    if pinned is not None:
        if pinned in running:
            return _Chosen(pinned.name, "pinned_cluster", pinned.name)
        return _Chosen(soonest.name, "starting", pinned.name)
    if features.cluster < 0:
        default = named.get(config.default_method or table.default_method, soonest)
        chosen = default if default in running else soonest
        return _Chosen(chosen.name, "degraded", default.name)

    favourite = _favourite(table, features, candidates, config)
    obstacle = favourite.obstacle
    if obstacle is None and favourite not in running:
        obstacle = "starting"
    unloaded = min(running, key=lambda one: one.alone) if obstacle else favourite
    method = _under_load(unloaded, timely)
    reason: Reason = "preferred" if method is favourite else obstacle or "load"
    last = named.get(constraints.conversation_method or "")
    if last is not None and last is not method:
        clearly = method.cost * (1.0 + CONVERSATION_MARGIN) < last.cost
        if not clearly:
            return _Chosen(last.name, "conversation", favourite.name)
    return _Chosen(method.name, reason, favourite.name)


def _running(timely: Sequence[Candidate], constraints: Constraints) -> Sequence[Candidate]:
    """Return the candidates that have a replica; all if none has."""
    return [one for one in timely if one.name not in constraints.startable] or timely


def _under_load(unloaded: Candidate, timely: Sequence[Candidate]) -> Candidate:
    """Return the candidate with the least cost under load, own seconds and delays of others.

    `unloaded` is the choice without load, made on evidence. So no other counts as faster than it
    is when idle. One with little evidence has to win by a standard error.
    """

    def seconds(one: Candidate) -> float:
        if one is unloaded:
            return one.cost
        return (one.cost * one.doubt + max(0.0, unloaded.idle - one.idle)) * (
            1.0 + favourites.HYSTERESIS
        )

    return min(timely, key=lambda one: (seconds(one), one is not unloaded))


def _favourite(
    table: RoutingTable,
    features: Features,
    candidates: Mapping[str, Candidate],
    config: RouterConfig,
) -> Candidate:
    """Return the preferred method for this prompt among all methods.

    It is the preferred method of the cluster and temperature band, unless the prediction for this
    prompt makes another method faster. The cluster's preferred method was found on evidence, by a
    margin. So no other counts as faster than the preferred method usually is, and only the prompt's
    deviation can move it, to a method with as much evidence.
    """
    everyone = list(candidates.values())
    current = table.methods.index(table.assignment[features.cluster][features.band])
    allowed = [
        i
        for i, n in enumerate(table.methods)
        if (config.lossy or table.lossless.get(n, False)) and config.weights.get(n) != 0.0
    ] or [current]
    winner = favourites.favourite(
        [one.usual for one in everyone],
        [one.answers for one in everyone],
        [one.log_error for one in everyone],
        current,
        allowed,
    )
    best = everyone[winner]
    if not features.predicted or best.answers < favourites.MIN_EVIDENCE_ANSWERS:
        return best

    def seconds(one: Candidate) -> float:
        # When a response takes no time, nothing can be won.
        ratio = one.alone / one.usual if one.usual > 0.0 else 1.0
        return ratio * max(one.usual, best.usual)

    rivals = [
        everyone[i] for i in allowed if everyone[i].answers >= favourites.MIN_EVIDENCE_ANSWERS
    ]
    return min(rivals, key=lambda one: (seconds(one), one is not best))
