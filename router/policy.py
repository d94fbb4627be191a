"""Which method answers a prompt, and why.

Predicted seconds = waiting for a place + prefill + decode steps x seconds per step at the batch
size that the sequence will join. The cluster's preferred method answers until another method is
better by HYSTERESIS. Under load that is the one that costs all requests together the fewest
seconds. A request that may be used to learn can go elsewhere (`router.exploration`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot
from typing import NamedTuple

from router.constraints import Constraints, Slo, obstacles_of, why_not
from router.exploration import Explorer, Option
from router.load import Prospect
from router.preferred import HYSTERESIS
from router.prompt import Features
from router.replica_loads import ReplicaLoads
from schemas import Decision, LoadReport, Reason, RouterConfig, RoutingTable


@dataclass(slots=True, eq=False)
class Candidate:
    """One method's prospects for one request.

    method: its index in the table. predicted: seconds under the present load. The next three are
    divided by the method's weight in the configuration and count what its failures cost, because
    methods are compared by them: alone: seconds on an idle replica. idle: `alone` with what the
    replica holds of the prompt. cost: `predicted` plus the seconds by which it delays others.
    first: seconds until the first token. per_token: between later tokens. error: standard deviation
    of the logarithm of `alone`. method_error: the part of it that all prompts share. obstacle: why
    it should not answer.
    """

    name: str
    method: int
    predicted: float
    alone: float
    idle: float
    cost: float
    first: float
    per_token: float
    error: float
    method_error: float
    obstacle: Reason | None = None


def candidates_of(
    table: RoutingTable,
    features: Features,
    loads: ReplicaLoads,
    constraints: Constraints,
    config: RouterConfig,
) -> dict[str, Candidate]:
    """Return all methods of the table by name, without obstacles."""
    forecasts, live = Prospect(table, features).under(loads), table.live
    errors = live.gain_error[features.cluster, :, features.condition].tolist()
    rows = zip(
        *(forecasts.items(), live.loss.tolist(), errors),
        *(live.method_error.tolist(), live.step_error.tolist(), live.prefill_error.tolist()),
        strict=True,
    )
    candidates = {}
    for m, ((name, forecast), loss, cell, method, step, prefill) in enumerate(rows):
        start, reading = constraints.startable.get(name, 0.0), forecast.reading
        seconds = forecast.seconds + start
        factor = (1.0 + loss) / (config.weights.get(name) or 1.0)
        prefill *= reading
        candidates[name] = Candidate(
            name=name,
            method=m,
            predicted=seconds,
            alone=factor * forecast.alone,
            idle=factor * (forecast.idle + start),
            cost=factor * (seconds + forecast.delay),
            first=forecast.first + start,
            per_token=forecast.per_token,
            error=hypot((1.0 - reading) * hypot(cell, step), prefill),
            method_error=hypot((1.0 - reading) * hypot(method, step), prefill),
        )
    return candidates


def in_time(candidates: Sequence[Candidate], deadline_seconds: float | None) -> list[Candidate]:
    """Return the candidates predicted to meet the deadline, or the fastest one if none is."""
    if deadline_seconds is None:
        return list(candidates)
    meeting = [one for one in candidates if one.predicted <= deadline_seconds]
    return meeting or [min(candidates, key=lambda one: one.predicted)]


def fast_enough(candidates: Sequence[Candidate], slo: Slo) -> list[Candidate]:
    """Return the candidates predicted to keep the objectives, or the one that misses them least if
    none does."""

    def excess(one: Candidate) -> float:
        objectives = (one.first, slo.first_seconds), (one.per_token, slo.token_seconds)
        return max((took / most for took, most in objectives if most is not None), default=0.0)

    keeping = [one for one in candidates if excess(one) <= 1.0]
    return keeping or [min(candidates, key=excess)]


POLICY = "predicted_seconds"

CONVERSATION_MARGIN = 0.15
"""Least advantage for which a conversation leaves the method of its last turn."""

EXPLORABLE_REASONS = ("preferred", "load", "constraint", "failover", "starting")
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
    explorer: Explorer | None = None,
) -> Decision:
    """Route one prompt. Nothing is explored without `explorer`.

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
    propensity, extra = 1.0, 0.0
    explorable = reason in EXPLORABLE_REASONS and len(ranked) > 1
    explorable &= constraints.explore and constraints.deadline_seconds is None
    explorable &= constraints.conversation_method is None and not constraints.slo
    if explorable and explorer is not None and config.exploration > 0.0:
        able = [one for one in ranked if one.name not in constraints.startable]
        if ranked[0] not in able:
            able = ranked[:1]
        options = [Option(one.method, one.cost, one.method_error) for one in able]
        made = explorer.choose(options, table.live.latest.tolist(), config.exploration)
        method, propensity, extra = able[made.option].name, made.propensity, made.seconds
        if made.option > 0:
            reason = "exploration"
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
    soonest = min(running, key=lambda one: one.cost)
    pinned = named.get(config.pinned_clusters.get(features.cluster, ""))
    if pinned is not None:
        if pinned in running:
            return _Chosen(pinned.name, "pinned_cluster", pinned.name)
        return _Chosen(soonest.name, "starting", pinned.name)
    if features.cluster < 0:
        default = named.get(config.default_method or table.default_method, soonest)
        chosen = default if default in running else soonest
        return _Chosen(chosen.name, "degraded", default.name)

    favourite = _preferred(table, features, candidates, config)
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

    `unloaded` is the choice without load. No other counts as faster than it is when idle, and one
    that is not known well has to win by a standard deviation.
    """

    def seconds(one: Candidate) -> float:
        if one is unloaded:
            return one.cost
        slower = one.cost * exp(one.error) + max(0.0, unloaded.idle - one.idle)
        return max(slower, unloaded.idle) * (1.0 + HYSTERESIS)

    return min(timely, key=lambda one: (seconds(one), one is not unloaded))


def _preferred(
    table: RoutingTable,
    features: Features,
    candidates: Mapping[str, Candidate],
    config: RouterConfig,
) -> Candidate:
    """Return the method that is predicted to be the fastest for this prompt on an idle replica.

    The cluster's preferred method stays until another one is faster by HYSTERESIS.
    """
    usual = table.assignment[features.cluster][features.band]
    allowed = [
        one
        for name, one in candidates.items()
        if (config.lossy or table.lossless.get(name, False)) and config.weights.get(name) != 0.0
    ] or [candidates[usual]]
    return min(
        allowed, key=lambda one: one.alone * (1.0 if one.name == usual else 1.0 + HYSTERESIS)
    )
