"""Predicted seconds of a prompt on the replicas as they are now.

A sequence joins a running batch at once while the line is empty and the KV pool has room. Otherwise
it waits until as many responses as stand in line before it, and one more, have ended.

If no replica runs a request's method alone, its steps are predicted among those of the others,
which it delays.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from router import acceptance, predict
from router.prompt import Features
from router.replica_loads import ReplicaLoads
from schemas import RoutingTable


class Forecast(NamedTuple):
    """The cost of a request with one method.

    seconds: its own until its last token. first: the part until its first token. per_token: seconds
    between later tokens. delay: seconds by which all other requests together end later. Sequences
    in its batch take longer steps while it runs, and wait for its prefill. As many requests as
    stand in line before it are expected behind it, and wait for its share of the replica's time.
    These delay others in turn. idle: what it would take on a usual replica without load that holds
    as much of the prompt. alone: on one that holds nothing of it. reading: the prefill's share of
    that.
    """

    seconds: float
    delay: float
    first: float = 0.0
    per_token: float = 0.0
    idle: float = 0.0
    alone: float = 0.0
    reading: float = 0.0


class Prospect:
    """A prompt's prefill and decode steps for every method, whatever else runs."""

    def __init__(self, table: RoutingTable, features: Features) -> None:
        self._table, self._condition = table, features.condition
        self._prompt_tokens, self._held = features.prompt_tokens, features.held
        self._slots = features.prompt_tokens + features.max_tokens
        cell = features.cluster, features.condition
        accepted = acceptance.expected(table, *cell, features.predicted)
        output = min(float(features.max_tokens), predict.expected_output(table, features.cluster))
        self._later_tokens = max(1.0, output - 1.0)
        self._times = predict.StepTimes(table, features.prompt_tokens + output / 2.0)
        self._steps = (max(0.0, output - 1.0) / accepted).tolist()
        self._prefills = predict.prefills(table, features.prompt_tokens)
        self._alone = [self._times.of(m, 1.0) for m in range(len(table.methods))]

    def under(self, loads: ReplicaLoads) -> dict[str, Forecast]:
        """Forecast every method of the table on the healthy replica that takes its next request.

        A method without a replica counts as idle.
        """
        places = self._places(loads) if loads.reports else [_IDLE] * len(self._table.methods)
        return {name: self._forecast(m, places[m]) for m, name in enumerate(self._table.methods)}

    def _places(self, loads: ReplicaLoads) -> "list[_Place]":
        """Return where each method's next request would run among its healthy replicas."""
        roomy = loads.hosts & ((loads.waiting <= 0.0) & (loads.free >= self._slots))
        counts = roomy.sum(axis=1)
        among = roomy if counts.all() else np.where(counts[:, None] > 0, roomy, loads.hosts)
        unread = None if self._held is None else self._prompt_tokens - self._held
        work = loads.work(self._later_tokens, unread=unread)
        best = np.where(among, work, np.inf).argmin(axis=1)
        held = [0.0] * len(best) if self._held is None else self._held[best].tolist()
        # The mean over all of them: the emptiest, which takes the prompt, will soon be like them.
        whole, rooms = (roomy @ loads.running).tolist(), counts.tolist()
        places, usual = [], loads.usual.tolist()
        for m, (batch, line, _, _, slower, *by_method) in enumerate(loads.of(best)):
            if self._table.methods[m] not in loads.live:
                places.append(_IDLE)
                continue
            others = enumerate(by_method[:-1]) if batch else ()
            running = {other: count for other, count in others if count > 0.0}
            slower /= usual[m]
            if rooms[m]:
                batch = 1.0 + whole[m] / rooms[m]
                places.append(_Place(0.0, batch, running, slower=slower, held=held[m]))
            else:
                batch = max(1.0, batch)
                turn = _turn(self._table, running or {m: 1.0}, self._condition, batch)
                waiting = (line + 1.0) * turn
                places.append(_Place(waiting, batch, running, line, True, slower, held[m]))
        return places

    def _forecast(self, m: int, place: "_Place") -> Forecast:
        steps, prefill = self._steps[m], self._prefills[m]
        decoding = steps * self._alone[m]
        alone = prefill + decoding
        reading = prefill / max(alone, 1e-9)
        if place is _IDLE:
            per_token = decoding / self._later_tokens
            return Forecast(alone, 0.0, prefill, per_token, alone, alone, reading)
        if place.held:
            prefill = predict.prefill_seconds(self._table, m, self._prompt_tokens, place.held)
        batch, line, slower = place.batch, place.line, place.slower
        others, own = batch - 1.0, self._times.of(m, batch)
        usual, step, delay = own, own, 0.0
        if others > 0.0 or line > 0.0:
            running, without = place.running or {m: 1.0}, batch if place.full else max(1.0, others)
            if running.keys() == {m}:
                before, lone = self._times.of(m, without), self._alone[m]
            else:
                usual = self._times.mixed(running, batch)
                step = usual + (own - usual) / batch
                before, lone = (self._times.mixed(running, size) for size in (without, 1.0))
            crowding = max(0.0, 1.0 - lone / usual) if usual > 0.0 else 0.0
            delay = others * (prefill + steps * max(0.0, step - before))
            delay += line * (prefill + steps * own / batch)
            # A delayed request stays longer and delays others in turn, the more so the closer a
            # replica is to saturation.
            delay *= 1.0 + crowding
        return Forecast(
            seconds=slower * (place.waiting + prefill + steps * step),
            delay=slower * delay,
            first=slower * (place.waiting + prefill),
            per_token=slower * steps * step / self._later_tokens,
            idle=prefill + decoding,
            alone=alone,
            reading=reading,
        )


class _Place(NamedTuple):
    """Where a request would run.

    waiting: seconds until it is admitted, at predicted speed. batch: sequences in the batch that it
    joins then. running: the others among them by method (index). line: requests that wait before
    it. full: whether the replica has no place until a response ends. slower: how many times as long
    as predicted the replica takes. held: tokens of the prompt that its cache holds.
    """

    waiting: float = 0.0
    batch: float = 1.0
    running: Mapping[int, float] = MappingProxyType({})
    line: float = 0.0
    full: bool = False
    slower: float = 1.0
    held: float = 0.0


_IDLE = _Place()


def _turn(table: RoutingTable, running: Mapping[int, float], condition: int, batch: float) -> float:
    """Return the seconds from one response's end to the next on a full replica.

    running: requests by method (index). It is an average response's share of the replica's time.
    """
    each_steps, prefills, times = _usual_answers(table)
    whole, steps, prefill = sum(running.values()), 0.0, 0.0
    for m, count in running.items():
        steps += count / whole * each_steps[condition][m]
        prefill += count / whole * prefills[m]
    return prefill + steps * times.mixed(running, batch) / batch


@acceptance.once
def _usual_answers(
    table: RoutingTable,
) -> tuple[list[list[float]], list[float], predict.StepTimes]:
    """Return an average answer's decode steps [c][m], its prefill's seconds [m], and the times of
    its steps."""
    accepted = acceptance.acceptance(table).mean(axis=0)
    return (
        (predict.emitted_output(table, -1) / accepted.T).tolist(),
        predict.prefills(table, predict.usual_prompt(table)),
        predict.StepTimes(table, predict.usual_context(table)),
    )
