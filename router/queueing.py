"""Seconds that a prompt would take on the replicas as they are now.

A sequence joins a running batch at once while nobody waits and the KV pool has room; then it
shares every step with the others, and a step takes as long as the slowest method in it. Behind a
line it waits until as many answers as stand before it, and one more, have given up their places.
"""

from collections.abc import Sequence

from router import predict
from router.predict import Floats
from schemas import LoadReport, RoutingTable


def seconds_by_method(
    table: RoutingTable,
    cluster: int,
    band: int,
    prompt_tokens: int,
    max_tokens: int,
    loads: Sequence[LoadReport],
) -> dict[str, float]:
    """Predicted seconds of every method of the table, each on the replica that takes its requests:
    of the healthy ones the one with the fewest outstanding tokens. Without a report a replica
    counts as empty. `band`: index of the temperature band; `cluster` -1: of any."""
    cells = predict.acceptance(table)[:, :, band]
    accepted = cells[cluster] if cluster >= 0 else cells.mean(axis=0)
    output = min(float(max_tokens), predict.expected_output(table, cluster))
    known, seconds = frozenset(table.methods), {}
    for m, name in enumerate(table.methods):
        hosts = [r for r in loads if name in r.methods and r.healthy]
        wait, batch, beside = 0.0, 1.0, set[int]()
        if hosts:
            report = min(hosts, key=lambda r: r.outstanding_tokens)
            full = report.waiting > 0 or report.free_slots < prompt_tokens + max_tokens
            batch = max(1.0, float(report.running + (not full)))
            beside = {table.methods.index(n) for n in report.running_by_method if n in known}
            if full:
                wait = (report.waiting + 1) * _turn(table, m, cells, batch)
        seconds[name] = wait + predict.predicted_seconds(
            table, accepted, m, prompt_tokens, output, batch, beside
        )
    return seconds


def _turn(table: RoutingTable, method: int, cells: Floats, batch: float) -> float:
    """Seconds from one answer's end to the next on a full replica: an average answer's share of
    the replica's time."""
    output = predict.expected_output(table, -1)
    prompts = table.provenance.get("prompt_tokens") or [predict.TYPICAL_PROMPT_TOKENS]
    prompt = sum(prompts) / len(prompts)
    steps = output / float(cells[:, method].mean())
    step = predict.step_seconds(table, method, batch, prompt + output / 2.0)
    return predict.prefill_seconds(table, method, prompt) + steps * step / batch
