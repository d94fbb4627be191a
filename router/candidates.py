"""What each method promises for one request under the present load."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot

from router.constraints import Constraints, Slo
from router.load import Prospect
from router.prompt import Features
from router.replica_loads import ReplicaLoads
from schemas import Reason, RouterConfig, RoutingTable


@dataclass(slots=True, eq=False)
class Candidate:
    """One method's prospects for one request.

    method: its index in the table. predicted: seconds under the present load. The next three are
    divided by the method's weight in the configuration and count what its failures cost, because
    methods are compared by them: alone: seconds on an idle replica. idle: `alone` with what the
    replica holds of the prompt. cost: `predicted` plus `delay`. first: seconds until the first
    token. per_token: between later tokens. delay: seconds by which it delays other requests. error:
    standard deviation of the logarithm of `alone`. method_error: the part of it that all prompts
    share. obstacle: why it should not answer.
    """

    name: str
    method: int
    predicted: float
    alone: float
    idle: float
    cost: float
    first: float
    per_token: float
    delay: float
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
    prospect = Prospect(table, features)
    alone, busy, live = prospect.alone(), prospect.under(loads), table.live
    errors = live.gain_error[features.cluster, :, features.condition].tolist()
    rows = zip(
        *(table.methods, prospect.prefill_shares(), live.loss.tolist(), errors),
        *(live.method_error.tolist(), live.step_error.tolist(), live.prefill_error.tolist()),
        strict=True,
    )
    candidates = {}
    for m, (name, reading, loss, cell, method, step, prefill) in enumerate(rows):
        forecast, start = busy[name], constraints.startable.get(name, 0.0)
        seconds = forecast.seconds + start
        factor = (1.0 + loss) / (config.weights.get(name) or 1.0)
        prefill *= reading
        candidates[name] = Candidate(
            name=name,
            method=m,
            predicted=seconds,
            alone=factor * alone[name],
            idle=factor * (forecast.idle + start),
            cost=factor * (seconds + forecast.delay),
            first=forecast.first + start,
            per_token=forecast.per_token,
            delay=forecast.delay,
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
