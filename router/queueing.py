"""Seconds that a prompt would take on the replicas as they are now.

A sequence joins a running batch at once while nobody waits and the KV pool has room. Behind a
line it waits until as many answers as stand before it, and one more, have given up their places.

Where replicas host several methods, a step of a batch takes what its sequences' methods take on the
mean.
So like goes to like: a request takes a replica that runs its method (`ranked`), and where there is
none a method's seconds are those of its steps beside the others', whom it delays.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType
from typing import NamedTuple

from router import belief, predict
from router.regression import NOTHING, Foretold
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
    counts = report.running_by_method
    if len(counts) == (method in counts):  # nobody runs there, or only the method's own
        return float(report.outstanding_tokens)
    running = sum(counts.values())
    others = running - counts.get(method, 0)
    share = others / running if running else 0.0
    return report.outstanding_tokens * (1.0 + MIXING * share)


KNOCK_ON = 2.0
"""Who is delayed is there longer and delays others in turn, the more so the nearer a replica is to
all that it can do: so much more is lost for each second, times the share of a step that is there
because of the batch. Found by simulation of three tables, in bursts and up to saturation: with 1 to
3 a routed service is as good, without it and with more it is worse."""


class Forecast(NamedTuple):
    """What a request would cost with a method.

    `seconds`: its own until its last token, of which it is `waiting` for a place. `delay`: by which
    all others together would be done later: while it runs the others in its batch take longer
    steps, for one sequence more and the longer the slower its method is, and wait for its prefill;
    as many as stand in line before it are expected behind it, and wait for its share of the
    replica's time, its own method's steps; and those to come are delayed by all these in turn.
    """

    seconds: float
    waiting: float
    delay: float


class Prospect:
    """What a prompt takes of every method, before it is known what else runs.

    band: index of the temperature band; cluster -1: of any; said: what is foretold of it.
    """

    def __init__(
        self,
        table: RoutingTable,
        cluster: int,
        band: int,
        prompt_tokens: int,
        max_tokens: int,
        said: Foretold = NOTHING,
    ) -> None:
        self._table, self._band = table, band
        self._slots = prompt_tokens + max_tokens
        usual = belief.expected(table, cluster, band)
        accepted = belief.expected(table, cluster, band, said) if said else usual
        output = min(float(max_tokens), predict.expected_output(table, cluster))
        self._times = predict.StepTimes(table, prompt_tokens + output / 2.0)
        self._steps = (max(0.0, output - 1.0) / accepted).tolist()
        self._usual_steps = (max(0.0, output - 1.0) / usual).tolist() if said else self._steps
        self._prefills = predict.prefills(table, prompt_tokens)

    def alone(self) -> dict[str, float]:
        """By method the seconds of a prompt that meets no other."""
        return self._alone(self._steps)

    def usual(self) -> dict[str, float]:
        """The same, but for what is foretold of this prompt alone."""
        return self._alone(self._usual_steps)

    def _alone(self, steps: Sequence[float]) -> dict[str, float]:
        of = self._times.of
        return {
            name: self._prefills[m] + steps[m] * of(m, 1.0)
            for m, name in enumerate(self._table.methods)
        }

    def under(self, loads: Sequence[LoadReport]) -> dict[str, Forecast]:
        """For every method of the table, on the healthy replica that takes its next request; a
        method without a report counts as idle."""
        hosts = _healthy_hosts(self._table.methods, loads)
        return {
            name: self._forecast(m, _place(self._table, name, self._band, self._slots, hosts[name]))
            for m, name in enumerate(self._table.methods)
        }

    def _forecast(self, m: int, place: "_Place") -> Forecast:
        times, steps, prefill = self._times, self._steps[m], self._prefills[m]
        if place is _IDLE:
            return Forecast(prefill + steps * times.of(m, 1.0), 0.0, 0.0)
        others = place.batch - 1.0
        without = place.batch if place.full else max(1.0, others)
        beside, own = place.beside or {m: 1.0}, times.of(m, place.batch)
        usual = own if beside.keys() == {m} else times.mixed(beside, place.batch)
        step = usual + (own - usual) / place.batch
        longer = max(0.0, step - times.mixed(beside, without))
        crowding = max(0.0, 1.0 - times.mixed(beside, 1.0) / usual) if usual > 0.0 else 0.0
        return Forecast(
            seconds=place.waiting + prefill + steps * step,
            waiting=place.waiting,
            delay=(1.0 + KNOCK_ON * crowding)
            * (
                others * (prefill + steps * longer)
                + place.line * (prefill + steps * own / place.batch)
            ),
        )


class _Place(NamedTuple):
    """Where a request would run: seconds until it is admitted, the batch that it joins then, how
    many of the others in that are of each method (by index), and how many stand in line before it;
    a `full` replica has no place until an answer ends."""

    waiting: float = 0.0
    batch: float = 1.0
    beside: Mapping[int, float] = MappingProxyType({})
    line: int = 0
    full: bool = False


_IDLE = _Place()


def _healthy_hosts(
    methods: Iterable[str], loads: Sequence[LoadReport]
) -> dict[str, list[LoadReport]]:
    """By method the healthy replicas that host it, in the order of their reports."""
    hosts: dict[str, list[LoadReport]] = {name: [] for name in methods}
    for report in loads:
        if report.healthy:
            for name in report.methods:
                if name in hosts:
                    hosts[name].append(report)
    return hosts


def _place(
    table: RoutingTable, method: str, band: int, slots: int, hosts: Sequence[LoadReport]
) -> _Place:
    if not hosts:
        return _IDLE
    roomy = [r for r in hosts if not r.waiting and r.free_slots >= slots]
    burdens = [burden(report, method) for report in roomy or hosts]
    report = (roomy or hosts)[burdens.index(min(burdens))]
    running = {
        table.methods.index(name): count
        for name, count in report.running_by_method.items()
        if count > 0 and name in table.methods
    }
    if roomy:
        # Of all of them: the emptiest, which takes the prompt, will soon be like the others.
        return _Place(0.0, 1.0 + sum(r.running for r in roomy) / len(roomy), running)
    batch = max(1.0, float(report.running))
    turn = _turn(table, running or {table.methods.index(method): 1}, band, batch)
    waiting = (report.waiting + 1) * turn
    return _Place(waiting, batch, running, report.waiting, full=True)


def _turn(table: RoutingTable, running: Mapping[int, int], band: int, batch: float) -> float:
    """Seconds from one answer's end to the next on a full replica where so many requests of each
    method (by index) run: an average answer's share of the replica's time."""
    output = predict.emitted_output(table, -1)
    prompts = table.provenance.get("prompt_tokens") or [predict.TYPICAL_PROMPT_TOKENS]
    prompt = sum(prompts) / len(prompts)
    accepted = belief.acceptance(table)[:, :, band].mean(axis=0)
    counts = list(running.values())
    steps = fmean((output / accepted[m] for m in running), weights=counts)
    prefill = fmean((predict.prefill_seconds(table, m, prompt) for m in running), weights=counts)
    step = predict.StepTimes(table, prompt + output / 2.0).mixed(running, batch)
    return prefill + steps * step / batch
