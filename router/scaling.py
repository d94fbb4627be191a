"""How many replicas a method needs for its present demand.

Demand is counted in predicted seconds of work, not in requests: a new request waits for the work of
those before it, be it one long response or eight short ones.
"""

import math

import numpy as np

from router import acceptance, predict
from router.replica_loads import slowness
from schemas import LoadReport, RoutingTable


class UsualAnswer:
    """Moving average of a replica's answer lengths in `tokens`, starting at the table's.

    Most answers are far shorter than their requests allow.
    """

    def __init__(self, table: RoutingTable) -> None:
        self.tokens = predict.expected_output(table, -1)

    def saw(self, tokens: int) -> None:
        """Count a response of this many tokens."""
        self.tokens += (tokens - self.tokens) / acceptance.HALF_LIFE


def work_seconds(table: RoutingTable, load: LoadReport, batch: int, usual: float) -> float:
    """Predict the seconds until a replica with full batches of `batch` has done its work.

    The work is what its requests may still emit, each at most the `usual` tokens, and the waiting
    prompts. It is always counted at full batches. At the present batch size the same requests would
    be more work the more replicas share them, so each replica would justify the next one. Step
    times are the table's, scaled by the replica's recent ones.
    """
    names = [n for n in (load.running_by_method or load.methods) if n in table.methods]
    if not load.requests or not names:
        return 0.0
    numbers = [table.methods.index(name) for name in names]
    counts = {
        n: load.running_by_method.get(name) or 1 for name, n in zip(names, numbers, strict=True)
    }
    prompt, context = predict.usual_prompt(table), predict.usual_context(table)
    times = predict.StepTimes(table, context)
    step = times.mixed(counts, float(batch)) * slowness(table, load)
    accepted = float(acceptance.acceptance(table)[:, numbers].mean())
    tokens = sum(min(left, usual) for left in load.requests.values())
    prefill = float(np.mean([predict.prefill_seconds(table, n, prompt) for n in numbers]))
    return tokens / (batch * accepted) * step + load.waiting * prefill


def wanted_replicas(work: float, requests: float, queued: float, target_seconds: float) -> int:
    """Return the replicas that finish all work within `target_seconds`.

    work: seconds of work for one replica. requests: that it belongs to. queued: requests without a
    replica, counted with the mean work of the others. One replica per request is the most.
    """
    each = work / requests if requests > 0.0 else target_seconds
    replicas = min((work + queued * each) / target_seconds, requests + queued)
    return math.ceil(replicas - 1e-9)
