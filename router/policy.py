"""Which method answers a prompt, and why.

Predicted seconds = waiting for a place + prefill + decode steps x seconds per step at the batch
size the sequence will join. The unloaded favourite keeps its place until another is better by
`hysteresis`; under load the method is taken that costs all requests together the least seconds;
what may be learned from may go elsewhere, where that is affordable (`router.explore`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp

import numpy as np

from router import belief, explore, predict
from router.admission import in_time
from router.constraints import Constraints, obstacles_of, why_not
from router.purse import Purse
from router.queueing import Prospect
from router.regression import Foretold
from schemas import (
    Decision,
    LoadReport,
    Reason,
    RouterConfig,
    RoutingTable,
    temperature_band,
)

POLICY = "predicted_seconds"

START_SECONDS = 30.0
"""From the first request for a method without a replica until it has one: a process starts and
loads a model."""


class NoMethodAvailableError(RuntimeError):
    """No method may answer this request; the message says what stands against each."""


@dataclass(frozen=True)
class Features:
    """What a prompt is, beside its cluster. `said`: of its acceptance, by the table's regression
    where it has one."""

    prompt_tokens: int
    max_tokens: int
    temperature: float = 0.0
    said: Foretold = field(default_factory=dict, hash=False)


def choose(
    table: RoutingTable,
    cluster: int,
    features: Features,
    loads: Sequence[LoadReport],
    constraints: Constraints,
    rng: np.random.Generator,
    config: RouterConfig,
    purse: Purse | None = None,
) -> Decision:
    """Route one prompt; `cluster` -1 means that it could not be embedded. Nothing is tried out
    without a `purse` to pay for it.

    Reasons: favourite; load (another, because of queues and batches); exploration; constraint
    (the favourite may not serve this request or would miss its deadline); failover (the favourite
    is not healthy or rests); starting (the favourite has no replica yet); pinned;
    pinned_cluster; conversation (stays with the last turn's method against the favourite);
    observed (the default answers, since routing is only observed); degraded (no cluster).
    Raises NoMethodAvailableError.
    """
    obstacles = obstacles_of(table, loads, constraints, config)
    names = [constraints.pinned] if constraints.pinned is not None else list(table.methods)
    admissible = [n for n in names if n in table.methods and obstacles[n] is None]
    if not admissible:
        why = [why_not(table, n, constraints, obstacles) for n in names]
        raise NoMethodAvailableError("; ".join(why))

    band = temperature_band(features.temperature)
    prospect = Prospect(
        table, cluster, band, features.prompt_tokens, features.max_tokens, features.said
    )
    alone, busy = prospect.alone(), prospect.under(loads)
    usual = prospect.usual() if features.said else alone
    loaded = {n: forecast.seconds for n, forecast in busy.items()}
    delays = {n: f.delay for n, f in busy.items()}
    loaded |= {n: loaded[n] + START_SECONDS for n in constraints.startable if n in loaded}
    costs = {n: loaded[n] + delays[n] for n in loaded}
    timely = in_time(admissible, loaded, constraints.deadline_seconds)
    obstacles |= {n: "constraint" for n in admissible if n not in timely}
    weighed = [_weighed(seconds, config) for seconds in (alone, loaded, costs)]
    usual = weighed[0] if usual is alone else _weighed(usual, config)
    errors = _errors(table, cluster, band, alone, loaded)
    method, reason, favourite = _greedy(
        table, cluster, features, constraints, config, timely, obstacles, errors, usual, *weighed
    )
    instead_of = None
    default = config.default_method or table.default_method
    if config.observe and reason not in ("pinned", "degraded") and default in timely:
        instead_of, method, favourite, reason = method, default, default, "observed"
    ranked = sorted(admissible, key=lambda n: (n != method, loaded[n]))
    propensity, extra, waiting = 1.0, 0.0, 0.0
    to_learn_from = ("favourite", "load", "constraint", "failover", "starting")
    explorable = reason in to_learn_from and len(ranked) > 1
    explorable &= constraints.explore and constraints.deadline_seconds is None
    explorable &= method != constraints.conversation_method
    if explorable and purse is not None and config.exploration > 0.0:
        made = explore.choice(
            [weighed[1][n] for n in ranked],
            [errors[n] for n in ranked],
            [delays[n] for n in ranked],
            config.hysteresis,
            config.exploration,
            purse,
            rng,
            table.objective,
        )
        method, propensity, extra = ranked[made.index], made.propensity, made.seconds
        if made.index > 0:
            reason = "exploration"
            waiting = busy[ranked[0]].waiting
    return Decision(
        method=method,
        ranked=tuple(ranked),
        cluster=cluster,
        reason=reason,
        propensity=propensity,
        policy=POLICY,
        fit_id=table.fit_id,
        table_version=table.version,
        predicted_seconds={n: round(loaded[n], 6) for n in ranked},
        foretold=dict(features.said),
        exploration_seconds=extra,
        first_waiting_seconds=waiting,
        instead_of=instead_of,
        starts=favourite if favourite in constraints.startable and favourite != method else None,
    )


def _greedy(
    table: RoutingTable,
    cluster: int,
    features: Features,
    constraints: Constraints,
    config: RouterConfig,
    admissible: Sequence[str],
    obstacles: Mapping[str, Reason | None],
    errors: Mapping[str, float],
    usual: Mapping[str, float],
    alone: Mapping[str, float],
    loaded: Mapping[str, float],
    costs: Mapping[str, float],
) -> tuple[str, Reason, str]:
    """The choice before exploration, its reason, and the favourite. `usual`: the seconds alone but
    for what is foretold of this prompt; `costs` are loaded + delays."""
    if constraints.pinned is not None:
        return constraints.pinned, "pinned", constraints.pinned
    pinned = config.pinned_clusters.get(cluster)
    if pinned is not None and pinned in admissible:
        return pinned, "pinned_cluster", pinned
    if cluster < 0:
        default = config.default_method or table.default_method
        fallback = min(admissible, key=lambda n: loaded[n])
        default = default if default in admissible else fallback
        return default, "degraded", default

    favourite = _favourite(table, cluster, features, config, usual, alone)
    obstacle = obstacles[favourite]
    running = [n for n in admissible if n not in constraints.startable]
    if obstacle is None and favourite in constraints.startable and running:
        obstacle = "starting"
    unloaded = min(running or admissible, key=lambda n: alone[n]) if obstacle else favourite
    doubts = _doubts(table, cluster, features, errors)
    method = _under_load(unloaded, admissible, alone, costs, doubts)
    reason: Reason = "favourite" if method == favourite else obstacle or "load"
    last = constraints.conversation_method
    if last is not None and last in admissible and last != method:
        clearly = costs[method] * (1.0 + config.conversation_margin) < costs[last]
        if not clearly:
            return last, "conversation", favourite
    return method, reason, favourite


def _weighed(seconds: Mapping[str, float], config: RouterConfig) -> dict[str, float]:
    """Predicted seconds as methods are compared by them; those of weight 0 never are."""
    if not config.weights:
        return dict(seconds)
    return {n: s / (config.weights.get(n) or 1.0) for n, s in seconds.items()}


def _under_load(
    unloaded: str,
    admissible: Sequence[str],
    alone: Mapping[str, float],
    costs: Mapping[str, float],
    doubts: Mapping[str, float],
) -> str:
    """Who costs the least seconds once queues and batches count, the request's own and those by
    which it delays others, `unloaded` being the choice without them.

    That choice has been made on evidence: predicted to be sooner does not suffice. So no other
    counts as sooner than it is alone, and only what the load adds can move a prompt; to a method of
    which little is known only if it were still the sooner one a standard error later than that.
    """
    doubts = {**doubts, unloaded: 1.0}
    seconds = {n: costs[n] * doubts[n] + max(0.0, alone[unloaded] - alone[n]) for n in admissible}
    return min(admissible, key=lambda n: (seconds[n], n != unloaded))


def _doubts(
    table: RoutingTable, cluster: int, features: Features, errors: Mapping[str, float]
) -> dict[str, float]:
    """By method, how many times slower it is a standard error from what is predicted under load,
    where there is too little evidence to compare it by; else 1."""
    known = belief.answers(table)[cluster, :, temperature_band(features.temperature)].tolist()
    return {
        n: 1.0 if answers >= predict.MIN_EVIDENCE_ANSWERS else exp(errors[n])
        for n, answers in zip(table.methods, known, strict=True)
    }


def _errors(
    table: RoutingTable,
    cluster: int,
    band: int,
    alone: Mapping[str, float],
    loaded: Mapping[str, float],
) -> dict[str, float]:
    """By method, the standard error of the logarithm of its predicted seconds under load: what is
    added by the load is known from the replicas' reports, so queues make no method uncertain."""
    errors = {}
    known = belief.log_error(table)[cluster, :, band].tolist()
    for name, error in zip(table.methods, known, strict=True):
        own = min(1.0, alone[name] / loaded[name]) if loaded[name] > 0.0 else 1.0
        errors[name] = max(belief.LEAST_ERROR, own * error)
    return errors


def _favourite(
    table: RoutingTable,
    cluster: int,
    features: Features,
    config: RouterConfig,
    usual: Mapping[str, float],
    alone: Mapping[str, float],
) -> str:
    """The favourite for this prompt, among all methods: the cluster's for such a length and
    temperature, unless what is foretold of the prompt makes another one sooner.

    The cluster's has been found on evidence, by a margin. So no other counts as sooner than it is
    as usual, and only what is foretold can move a prompt, to a method with as much evidence.
    """
    band = temperature_band(features.temperature)
    current = table.methods.index(table.assignment[cluster][band])
    allowed = [
        i
        for i, n in enumerate(table.methods)
        if (config.lossy or table.lossless.get(n, False)) and config.weights.get(n) != 0.0
    ] or [current]
    answers = belief.answers(table)[cluster, :, band].tolist()
    winner = predict.favourite(
        [usual[n] for n in table.methods],
        answers,
        belief.log_error(table)[cluster, :, band].tolist(),
        current,
        config.hysteresis,
        config.confidence,
        allowed,
    )
    best = table.methods[winner]
    if usual is alone or answers[winner] < predict.MIN_EVIDENCE_ANSWERS:
        return best
    rivals = [table.methods[i] for i in allowed if answers[i] >= predict.MIN_EVIDENCE_ANSWERS]
    # of a prompt whose answer takes no time, nothing is to be won
    ratio = {n: alone[n] / usual[n] if usual[n] > 0.0 else 1.0 for n in rivals}
    seconds = {n: ratio[n] * max(usual[n], usual[best]) for n in rivals}
    return min(rivals, key=lambda n: (seconds[n], n != best))
