"""Seconds that a prompt would take on the replicas as they are now.

A sequence joins a running batch at once while nobody waits and the KV pool has room. Behind a
line it waits until as many answers as stand before it, and one more, have given up their places.

Where replicas host several methods, a step of a batch takes as long as the slowest method in it.
So like goes to like: a request takes a replica that runs its method (`ranked`), and where there is
none a method's seconds are those of its steps beside the others'.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from router import belief, predict
from schemas import LoadReport, RoutingTable

MIXING = 3.0
"""How much more a replica's outstanding tokens count, where all that runs there are other
methods: found by simulation, between 1 and 3 it hardly matters."""


def ranked(replicas: Iterable[LoadReport], method: str) -> list[LoadReport]:
    """The replicas in the order in which they should take a request of `method`: the healthy ones
    first, among these the one with the least burden, equals as they were given."""
    return sorted(replicas, key=lambda report: (not report.healthy, burden(report, method)))


def burden(report: LoadReport, method: str) -> float:
    """The outstanding tokens of a replica, as they count for a request of `method`."""
    running = sum(report.running_by_method.values())
    others = running - report.running_by_method.get(method, 0)
    share = others / running if running else 0.0
    return report.outstanding_tokens * (1.0 + MIXING * share)


def seconds_by_method(
    table: RoutingTable,
    cluster: int,
    band: int,
    prompt_tokens: int,
    max_tokens: int,
    loads: Sequence[LoadReport],
) -> dict[str, float]:
    """Predicted seconds of every method of the table, each on the healthy replica that takes its
    next request; a method without a report counts as idle. `band`: index of the temperature band;
    `cluster` -1: of any."""
    cells = belief.acceptance(table)[:, :, band]
    accepted = cells[cluster] if cluster >= 0 else cells.mean(axis=0)
    output = min(float(max_tokens), predict.expected_output(table, cluster))
    seconds = {}
    for m, name in enumerate(table.methods):
        place = _place(table, name, band, prompt_tokens + max_tokens, loads)
        seconds[name] = place.wait + predict.predicted_seconds(
            table, float(accepted[m]), m, prompt_tokens, output, place.batch, place.beside
        )
    return seconds


def waiting_seconds(
    table: RoutingTable, method: str, band: int, slots: int, loads: Sequence[LoadReport]
) -> float:
    """What of a method's predicted seconds a request of so many KV slots waits for a place."""
    return _place(table, method, band, slots, loads).wait


@dataclass(frozen=True)
class _Place:
    """Where a request would run: seconds until it is admitted, the batch that it joins then, and
    the methods (indices) of the others in that."""

    wait: float = 0.0
    batch: float = 1.0
    beside: frozenset[int] = frozenset()


def _place(
    table: RoutingTable, method: str, band: int, slots: int, loads: Sequence[LoadReport]
) -> _Place:
    hosts = [r for r in loads if method in r.methods and r.healthy]
    roomy = [r for r in hosts if not r.waiting and r.free_slots >= slots]
    if not hosts:
        return _Place()
    report = ranked(roomy or hosts, method)[0]
    running = [name for name, count in report.running_by_method.items() if count > 0]
    beside = frozenset(table.methods.index(name) for name in running if name in table.methods)
    if roomy:
        # Of all of them: the emptiest, which takes the prompt, will soon be like the others.
        return _Place(0.0, 1.0 + fmean(r.running for r in roomy), beside)
    batch = max(1.0, float(report.running))
    return _Place((report.waiting + 1) * _turn(table, method, band, batch), batch, beside)


def _turn(table: RoutingTable, method: str, band: int, batch: float) -> float:
    """Seconds from one answer's end to the next on a full replica: an average answer's share of
    the replica's time."""
    m = table.methods.index(method)
    output = predict.emitted_output(table, -1)
    prompts = table.provenance.get("prompt_tokens") or [predict.TYPICAL_PROMPT_TOKENS]
    prompt = sum(prompts) / len(prompts)
    steps = output / float(belief.acceptance(table)[:, m, band].mean())
    step = predict.step_seconds(table, m, batch, prompt + output / 2.0)
    return predict.prefill_seconds(table, m, prompt) + steps * step / batch
