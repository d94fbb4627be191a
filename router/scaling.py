"""How many replicas a method's present demand is worth.

Demand is counted in predicted seconds of work, by the router's own prediction: a replica with one
long answer ahead and one with eight short ones have as many requests as they have, but what a
newcomer waits for is the work.
"""

import math

import numpy as np

from router import belief, predict
from schemas import LoadReport, RoutingTable


def work_seconds(table: RoutingTable, load: LoadReport) -> float:
    """Seconds until a replica has done all that it has been given: its outstanding tokens, in
    batches as large as the present one, and the prompts that wait.

    Step times are those that the replica has measured, else the table's.
    """
    names = [n for n in (load.running_by_method or load.methods) if n in table.methods]
    if not load.outstanding_tokens or not names:
        return 0.0
    numbers = [table.methods.index(name) for name in names]
    batch = max(1.0, float(load.running))
    prompts = table.provenance.get("prompt_tokens") or [predict.TYPICAL_PROMPT_TOKENS]
    prompt = float(np.mean(prompts))
    context = prompt + predict.emitted_output(table, -1) / 2.0
    steps = [
        load.recent_step_seconds.get(name) or predict.step_seconds(table, number, batch, context)
        for name, number in zip(names, numbers, strict=True)
    ]
    accepted = float(belief.acceptance(table)[:, numbers].mean())
    prefill = float(np.mean([predict.prefill_seconds(table, n, prompt) for n in numbers]))
    return load.outstanding_tokens / (batch * accepted) * max(steps) + load.waiting * prefill


def wanted_replicas(
    work: float, requests: float, queued: float, target_seconds: float, spare: int
) -> int:
    """Replicas that have done `work` seconds of one replica's work, of so many requests, within
    `target_seconds`, and `spare` more. `queued` requests that no replica has yet are taken to be
    as long as those."""
    each = work / requests if requests > 0.0 else target_seconds
    return math.ceil((work + queued * each) / target_seconds - 1e-9) + spare
