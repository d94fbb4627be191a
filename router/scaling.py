"""How many replicas a method's present demand is worth.

Demand is counted in predicted seconds of work, by the router's own prediction: a replica with one
long answer ahead and one with eight short ones have as many requests as they have, but what a
newcomer waits for is the work.
"""

import math

import numpy as np

from router import belief, predict
from schemas import LoadReport, RoutingTable

LOOK_BACK_SECONDS = 15.0
"""Reports this old are averaged over; Ray's replicas push theirs every ten seconds."""

USUAL_ANSWERS = 50.0
"""The last answer weighs one of so many in the usual one."""


class UsualAnswer:
    """`tokens` of a replica's usual answer: the table's at first, then those of its own.

    Most requests may have far more tokens than their answers come to.
    """

    def __init__(self, table: RoutingTable) -> None:
        self.tokens = predict.expected_output(table, -1)

    def saw(self, tokens: int) -> None:
        """Another answer has ended after so many tokens."""
        self.tokens += (tokens - self.tokens) / USUAL_ANSWERS


def work_seconds(table: RoutingTable, load: LoadReport, batch: int, usual: float) -> float:
    """Seconds until a replica that decodes full batches of `batch` has done all that it has been
    given: what its requests may still emit, none of them more than the `usual` tokens, and the
    prompts that wait.

    Of full batches whatever runs now: by steps of the present batch the same requests were more
    work the more replicas they are spread over, and every replica a reason for the next one. Step
    times are the table's, times what the replica's own show them to be here.
    """
    names = [n for n in (load.running_by_method or load.methods) if n in table.methods]
    if not load.requests or not names:
        return 0.0
    numbers = [table.methods.index(name) for name in names]
    counts = {
        n: load.running_by_method.get(name) or 1 for name, n in zip(names, numbers, strict=True)
    }
    prompts = table.provenance.get("prompt_tokens") or [predict.TYPICAL_PROMPT_TOKENS]
    prompt = float(np.mean(prompts))
    times = predict.StepTimes(table, prompt + predict.emitted_output(table, -1) / 2.0)
    present = max(1.0, load.mean_batch)
    usual_step = times.mixed(counts, present)
    recent = [load.recent_step_seconds[n] for n in names if n in load.recent_step_seconds]
    slower = [seconds / usual_step for seconds in recent]
    step = times.mixed(counts, float(batch)) * max(slower, default=1.0)
    accepted = float(belief.acceptance(table)[:, numbers].mean())
    tokens = sum(min(left, usual) for left in load.requests.values())
    prefill = float(np.mean([predict.prefill_seconds(table, n, prompt) for n in numbers]))
    return tokens / (batch * accepted) * step + load.waiting * prefill


def wanted_replicas(
    work: float, requests: float, queued: float, target_seconds: float, spare: int
) -> int:
    """Replicas that have done `work` seconds of one replica's work, of so many requests, within
    `target_seconds`, but no more than one for each request; and `spare` more. `queued` requests
    that no replica has yet are taken to be as long as those."""
    each = work / requests if requests > 0.0 else target_seconds
    replicas = min((work + queued * each) / target_seconds, requests + queued)
    return math.ceil(replicas - 1e-9) + spare
