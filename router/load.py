"""Predicted seconds of a prompt on the replicas as they are now.

A sequence joins a running batch at once while the line is empty and the KV pool has room. Otherwise
it waits until as many answers as stand in line before it, and one more, have ended.

Where replicas host several methods, a step takes the mean of its sequences' methods. So like goes
to like: a request takes a replica that runs its method (`ranked`). If there is none, its steps are
predicted among those of the others, which it delays.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from statistics import fmean
from types import MappingProxyType
from typing import NamedTuple

from router import evidence, predict
from router.prompt import Features
from schemas import LoadReport, RoutingTable

MIXING = 3.0
"""How much more a replica's outstanding tokens count when only other methods run there. Found by
simulation; between 1 and 3 it hardly matters."""

KNOCK_ON = 2.0
"""A delayed request stays longer and delays others in turn, the more so the closer a replica is to
saturation. Each second of delay counts as this many more, times the share of a step that the batch
adds. Found by simulating three tables in bursts and up to saturation: 1 to 3 serve equally well,
without it or above it service is worse."""


MOST_SLOWER = 4.0
"""Most that a replica counts as slower or faster than predicted. One that a pause has made look
slow has to get requests again, or nothing would correct that."""


def ranked(
    replicas: Iterable[LoadReport],
    method: str,
    tokens: float = 0.0,
    table: RoutingTable | None = None,
) -> list[LoadReport]:
    """Order replicas by who should take a request of `method` with these output tokens.

    Healthy ones come first, then the least work; ties keep their order.
    """

    def key(report: LoadReport) -> tuple[bool, float]:
        return not report.healthy, work(report, method, tokens, table)

    return sorted(replicas, key=key)


def work(
    report: LoadReport, method: str, tokens: float, table: RoutingTable | None = None
) -> float:
    """Return a replica's burden with a request of `method` and these output tokens, in tokens of a
    replica that is as fast as the table predicts."""
    burdened = burden(report, method) + tokens
    if table is None:
        return burdened
    return burdened * _bounded(slowness(table, report))


def slowness(table: RoutingTable, report: LoadReport) -> float:
    """Return the ratio of a replica's recent step time to the predicted one; 1 if it is unknown."""
    context, batch = report.mean_context or _usual_context(table), max(1.0, report.mean_batch)
    times = predict.StepTimes(table, context)
    numbers = {n: m for m, n in enumerate(table.methods)}
    recent = {numbers[n]: s for n, s in report.recent_step_seconds.items() if n in numbers}
    running = {numbers[n]: c for n, c in report.running_by_method.items() if c and n in numbers}
    if running.keys() & recent.keys():
        step, predicted = (
            max(recent[m] for m in running if m in recent),
            times.mixed(running, batch),
        )
    else:
        step, predicted = sum(recent.values()), sum(times.of(m, batch) for m in recent)
    return step / predicted if predicted > 0.0 else 1.0


@evidence.once
def _usual_context(table: RoutingTable) -> float:
    """Return the context of a usual answer."""
    prompts = table.provenance.get("prompt_tokens") or [predict.TYPICAL_PROMPT_TOKENS]
    return float(sum(prompts) / len(prompts)) + predict.emitted_output(table, -1) / 2.0


def burden(report: LoadReport, method: str) -> float:
    """Return a replica's outstanding tokens as they count for a request of `method`."""
    counts = report.running_by_method
    if len(counts) == (method in counts):  # idle, or running this method alone
        return float(report.outstanding_tokens)
    running = sum(counts.values())
    others = running - counts.get(method, 0)
    share = others / running if running else 0.0
    return report.outstanding_tokens * (1.0 + MIXING * share)


def relative_slowness(
    table: RoutingTable, report: LoadReport, hosts: Sequence[LoadReport]
) -> float:
    """Return how many times as long as the table predicts a replica's steps take.

    hosts: all replicas of its method. The table's live step times are those of their answers taken
    together, and fast replicas give more answers. So the mean of all replicas counts as predicted
    right, and a replica without others is never slow: its own answers correct the table.
    """
    each = [_bounded(slowness(table, host)) for host in hosts]
    answers = sum(1.0 / one for one in each)
    return _bounded(slowness(table, report)) / exp(sum(log(one) / one for one in each) / answers)


def _bounded(slower: float) -> float:
    return min(MOST_SLOWER, max(1.0 / MOST_SLOWER, slower))


class Forecast(NamedTuple):
    """The cost of a request with one method.

    seconds: its own until its last token. waiting: the part of them until it gets a place. first:
    the part until its first token. per_token: seconds between later tokens. delay: seconds by which
    all other requests together end later. Sequences in its batch take longer steps while it runs,
    and wait for its prefill. As many requests as stand in line before it are expected behind it,
    and wait for its share of the replica's time. These delay others in turn.
    """

    seconds: float
    waiting: float
    delay: float
    first: float = 0.0
    per_token: float = 0.0


class Prospect:
    """A prompt's prefill and decode steps for every method, whatever else runs."""

    def __init__(self, table: RoutingTable, features: Features) -> None:
        self._table, self._band = table, features.band
        self._slots = features.prompt_tokens + features.max_tokens
        cell = features.cluster, features.band
        usual = evidence.expected(table, *cell)
        predicted = features.predicted
        accepted = evidence.expected(table, *cell, predicted) if predicted else usual
        output = min(float(features.max_tokens), predict.expected_output(table, features.cluster))
        self._later_tokens = max(1.0, output - 1.0)
        self._times = predict.StepTimes(table, features.prompt_tokens + output / 2.0)
        self._steps = (max(0.0, output - 1.0) / accepted).tolist()
        self._usual_steps = (max(0.0, output - 1.0) / usual).tolist() if predicted else self._steps
        self._prefills = predict.prefills(table, features.prompt_tokens)

    def alone(self) -> dict[str, float]:
        """Predict seconds by method on an idle replica."""
        return self._alone(self._steps)

    def usual(self) -> dict[str, float]:
        """Predict seconds by method on an idle replica without the prompt's deviation."""
        return self._alone(self._usual_steps)

    def _alone(self, steps: Sequence[float]) -> dict[str, float]:
        of = self._times.of
        return {
            name: self._prefills[m] + steps[m] * of(m, 1.0)
            for m, name in enumerate(self._table.methods)
        }

    def under(self, loads: Sequence[LoadReport]) -> dict[str, Forecast]:
        """Forecast every method of the table on the healthy replica that takes its next request.

        A method without a report counts as idle.
        """
        hosts = _healthy_hosts(self._table.methods, loads)
        return {
            name: self._forecast(m, self._place(name, hosts[name]))
            for m, name in enumerate(self._table.methods)
        }

    def _place(self, method: str, hosts: Sequence[LoadReport]) -> "_Place":
        """Return where a method's next request would run among its healthy replicas."""
        if not hosts:
            return _IDLE
        table, tokens = self._table, self._later_tokens
        roomy = [r for r in hosts if not r.waiting and r.free_slots >= self._slots]
        report = min(roomy or hosts, key=lambda one: work(one, method, tokens, table))
        slower = relative_slowness(table, report, hosts)
        running = {
            table.methods.index(name): count
            for name, count in report.running_by_method.items()
            if count > 0 and name in table.methods
        }
        if roomy:
            # The mean over all of them: the emptiest, which takes the prompt, will soon be like
            # them.
            batch = 1.0 + sum(r.running for r in roomy) / len(roomy)
            return _Place(0.0, batch, running, slower=slower)
        batch = max(1.0, float(report.running))
        turn = _turn(table, running or {table.methods.index(method): 1}, self._band, batch)
        waiting = (report.waiting + 1) * turn
        return _Place(waiting, batch, running, report.waiting, full=True, slower=slower)

    def _forecast(self, m: int, place: "_Place") -> Forecast:
        times, steps, prefill = self._times, self._steps[m], self._prefills[m]
        if place is _IDLE:
            decoding = steps * times.of(m, 1.0)
            per_token = decoding / self._later_tokens
            return Forecast(prefill + decoding, 0.0, 0.0, prefill, per_token)
        others = place.batch - 1.0
        without = place.batch if place.full else max(1.0, others)
        running, own = place.running or {m: 1.0}, times.of(m, place.batch)
        usual = own if running.keys() == {m} else times.mixed(running, place.batch)
        step = usual + (own - usual) / place.batch
        longer = max(0.0, step - times.mixed(running, without))
        crowding = max(0.0, 1.0 - times.mixed(running, 1.0) / usual) if usual > 0.0 else 0.0
        predicted = Forecast(
            seconds=place.waiting + prefill + steps * step,
            waiting=place.waiting,
            delay=(1.0 + KNOCK_ON * crowding)
            * (
                others * (prefill + steps * longer)
                + place.line * (prefill + steps * own / place.batch)
            ),
            first=place.waiting + prefill,
            per_token=steps * step / self._later_tokens,
        )
        return Forecast(*(seconds * place.slower for seconds in predicted))


class _Place(NamedTuple):
    """Where a request would run.

    waiting: seconds until it is admitted, at predicted speed. batch: sequences in the batch that it
    joins then. running: the others among them by method (index). line: requests that wait before
    it. full: whether the replica has no place until an answer ends. slower: how many times as long
    as predicted the replica takes.
    """

    waiting: float = 0.0
    batch: float = 1.0
    running: Mapping[int, float] = MappingProxyType({})
    line: int = 0
    full: bool = False
    slower: float = 1.0


_IDLE = _Place()


def _healthy_hosts(
    methods: Iterable[str], loads: Sequence[LoadReport]
) -> dict[str, list[LoadReport]]:
    """Return the healthy replicas of each method, in the order of their reports."""
    hosts: dict[str, list[LoadReport]] = {name: [] for name in methods}
    for report in loads:
        if report.healthy:
            for name in report.methods:
                if name in hosts:
                    hosts[name].append(report)
    return hosts


def _turn(table: RoutingTable, running: Mapping[int, int], band: int, batch: float) -> float:
    """Return the seconds from one answer's end to the next on a full replica.

    running: requests by method (index). It is an average answer's share of the replica's time.
    """
    output = predict.emitted_output(table, -1)
    prompts = table.provenance.get("prompt_tokens") or [predict.TYPICAL_PROMPT_TOKENS]
    prompt = sum(prompts) / len(prompts)
    accepted = evidence.acceptance(table)[:, :, band].mean(axis=0)
    counts = list(running.values())
    steps = fmean((output / accepted[m] for m in running), weights=counts)
    prefill = fmean((predict.prefill_seconds(table, m, prompt) for m in running), weights=counts)
    step = predict.StepTimes(table, prompt + output / 2.0).mixed(running, batch)
    return prefill + steps * step / batch
