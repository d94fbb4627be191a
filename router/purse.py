"""What learning may cost, and what it did.

Every request that may be used to learn puts a share of its predicted seconds in, and a choice that
is predicted to take longer takes the difference out, both as the objective counts them (`unit_of`).
When the answer has come the books are put right: what was tried out has cost what it took more than
the first choice would have taken, and methods that are tried because they look sooner than they are
(the winner's curse) are paid for like any other.
"""

from router import belief, predict
from schemas import Decision, DecodeStats, Objective, RoutingTable, temperature_band

PURSE_REQUESTS = 100.0
"""A purse holds at most what so many requests like the present one put in: at a share of 3% that
pays for one answer of a method that is four times slower. More would be spent all at once when
the traffic changes. It owes no more either: one answer that stalled does not end learning."""

START_REQUESTS = 8.0
"""Requests' worth of the first choice that a purse holds once in advance, when it meets a method of
which nothing is known: without a try there is nothing to learn from."""


class Purse:
    """What one ingress may spend on learning, in units (`unit_of`); empty at first. Below zero,
    after trials that cost more than was predicted, nothing is tried until requests have filled it
    again."""

    def __init__(self) -> None:
        self.units = 0.0
        self._limit = 0.0
        self._started = False
        self._took = self._predicted = 0.0

    def earn(self, units: float) -> None:
        """One request's contribution. It never takes away what dearer requests have put in."""
        self._limit = PURSE_REQUESTS * units
        self._add(units)

    def start(self, units: float) -> None:
        """The first time, so much in advance."""
        if not self._started:
            self._started = True
            self.units += units

    def first_choice_took(self, seconds: float, predicted: float) -> None:
        """An answer that nothing was tried with took so long and, of its length, was predicted to
        take so long: predictions that are off for all alike are corrected by it."""
        forget = 0.5 ** (1.0 / PURSE_REQUESTS)
        self._took = forget * self._took + seconds
        self._predicted = forget * self._predicted + predicted

    def settle(
        self,
        paid: float,
        seconds: float,
        first: float,
        waiting: float = 0.0,
        choices: int = 1,
        objective: Objective = "seconds",
    ) -> None:
        """A trial that `paid` was taken out for, of `choices` answers, and one of them took
        `seconds`; the first choice was predicted to be `waiting` for a place and, for an answer of
        this length, to take `first` from then on."""
        right = self._took / self._predicted if self._predicted > 0.0 else 1.0
        cost = seconds - waiting - right * first
        self._add((paid - cost / unit_of(objective, right * first)) / choices)

    def _add(self, units: float) -> None:
        filled = min(max(self.units, self._limit), self.units + units)
        self.units = max(min(self.units, -self._limit), filled)

    def pay(self, units: float) -> None:
        """A trial is predicted to take so much longer than the first choice, others' delay
        included."""
        self.units = max(self.units - units, min(self.units, -self._limit))


def settle(
    table: RoutingTable,
    decision: Decision,
    stats: DecodeStats,
    purse: Purse,
    choices: int = 1,
) -> None:
    """Put the purse right about a decision whose answer, one of `choices`, has come.

    Predictions are those of an answer of this length, in its batch, from the table as it is now.
    A trial's seconds include its wait for a place, beside the wait that the first choice was
    predicted to have.
    """
    own, first = stats.method, decision.ranked[0]
    if decision.cluster < 0 or not {own, first} <= set(table.methods):
        return
    if decision.fit_id != table.fit_id:
        return
    m, band = table.methods.index(first), temperature_band(stats.temperature)
    predicted = predict.predicted_seconds(
        table,
        float(belief.expected(table, decision.cluster, band, decision.foretold)[m]),
        m,
        stats.prompt_tokens,
        stats.output_tokens,
        max(1.0, stats.mean_batch),
    )
    if decision.reason == "exploration" and own == decision.method:
        unit = unit_of(table.objective, decision.predicted_seconds[first])
        purse.settle(
            decision.exploration_seconds / unit,
            stats.total_seconds - stats.stalled_seconds,
            predicted,
            decision.first_waiting_seconds,
            choices,
            table.objective,
        )
    elif own == first:
        took = stats.total_seconds - stats.queue_seconds - stats.stalled_seconds
        purse.first_choice_took(took, predicted)


def unit_of(objective: Objective, seconds: float) -> float:
    """What a purse counts in, in seconds, of a request whose first choice takes so many: where the
    mean speedup is the objective, short answers' seconds are as dear as long ones' are together."""
    return max(seconds, 1e-9) if objective == "speedup" else 1.0
