"""What each method promises for one request under the present load."""

from dataclasses import dataclass
from math import exp

from router import evidence, favourites
from router.constraints import Constraints
from router.load import Prospect
from router.prompt import Features
from router.replica_loads import ReplicaLoads
from schemas import Reason, RouterConfig, RoutingTable


@dataclass(slots=True, eq=False)
class Candidate:
    """One method's prospects for one request.

    predicted: seconds under the present load. The next five are divided by the method's weight in
    the configuration, because methods are compared by them: alone: seconds on an idle replica.
    usual: `alone` without the prompt's deviation from its cluster. idle: `alone` with what the
    replica holds of the prompt. loaded: `predicted`. cost: `predicted` plus `delay`. waiting: part
    of `predicted` until it gets a place. first: until the first token. per_token: between later
    tokens. delay: seconds by which it delays other requests. answers: evidence behind its
    acceptance. log_error: standard error of the logarithm of `alone`. error: of `predicted`; the
    load, known from reports, adds nothing to it. obstacle: why it should not answer.
    """

    name: str
    predicted: float
    alone: float
    usual: float
    idle: float
    loaded: float
    cost: float
    waiting: float
    first: float
    per_token: float
    delay: float
    answers: float
    log_error: float
    error: float
    obstacle: Reason | None

    @property
    def doubt(self) -> float:
        """How many times slower it is a standard error from the prediction.

        It is 1 with enough evidence to compare the method by.
        """
        return 1.0 if self.answers >= favourites.MIN_EVIDENCE_ANSWERS else exp(self.error)


def candidates_of(
    table: RoutingTable,
    features: Features,
    loads: ReplicaLoads,
    constraints: Constraints,
    config: RouterConfig,
) -> dict[str, Candidate]:
    """Return all methods of the table by name, without obstacles."""
    prospect = Prospect(table, features)
    alone, busy = prospect.alone(), prospect.under(loads)
    usual = prospect.usual() if features.predicted else alone
    cell = features.cluster, slice(None), features.band
    answers = evidence.answers(table)[cell].tolist()
    log_errors = evidence.log_error(table)[cell].tolist()
    candidates = {}
    for name, known, log_error in zip(table.methods, answers, log_errors, strict=True):
        forecast, start = busy[name], constraints.startable.get(name, 0.0)
        seconds = forecast.seconds + start
        own = min(1.0, alone[name] / seconds) if seconds > 0.0 else 1.0
        weight = config.weights.get(name) or 1.0
        candidates[name] = Candidate(
            name=name,
            predicted=seconds,
            alone=alone[name] / weight,
            usual=usual[name] / weight,
            idle=(forecast.idle + start) / weight,
            loaded=seconds / weight,
            cost=(seconds + forecast.delay) / weight,
            waiting=forecast.waiting,
            first=forecast.first + start,
            per_token=forecast.per_token,
            delay=forecast.delay,
            answers=known,
            log_error=log_error,
            error=max(evidence.LEAST_ERROR, own * log_error),
            obstacle=None,
        )
    return candidates
