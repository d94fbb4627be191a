"""The replicas' loads as numbers, and which replica should take a request.

Where replicas host several methods, a step takes the mean of its sequences' methods. So like goes
to like: a request takes a replica that runs its method.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router import acceptance, predict
from router.acceptance import Floats
from schemas import DecodeRequest, LoadReport, RoutingTable

Indices = NDArray[np.intp]

LASTING = 0.25
"""Share of a usual response's tokens with which a running request counts in full."""

MOST_SLOWER = 4.0
"""Most that a replica counts as slower or faster: one that a pause slowed has to be asked again."""


class Added(NamedTuple):
    """What one request adds to a replica (by index): the share of a request for which it counts
    among the running ones, 0 while it waits; tokens and slots."""

    replica: int
    method: int
    running: float
    tokens: float
    slots: float


class ReplicaLoads:
    """The loads of n replicas in arrays, which single requests change.

    methods: of the table, or of the reports without one. running, waiting, outstanding, free [n]:
    see LoadReport; running requests count by the tokens they have left. counts
    [m + 1, n]: running requests by method, other methods last. hosts [m, n]:
    whether a healthy replica hosts a method. slower [n]: how many times as long as predicted its
    steps take. usual [m]: the mean of that over a method's replicas. reading [m + 1]: output tokens
    that take as long as reading a prompt token; 0 for other methods and without a table. live: the
    healthy replicas by method, without those that have none.
    """

    def __init__(self, reports: Iterable[LoadReport], table: RoutingTable | None = None) -> None:
        """table: predicts the step times that tell how fast each replica is; None: all alike."""
        self.reports = known = tuple(reports)
        names = {name for report in known for name in report.methods}
        self.methods = tuple(sorted(names)) if table is None else table.methods
        self.numbers = {name: m for m, name in enumerate(self.methods)}
        usual = 0.0 if table is None else predict.emitted_output(table, -1)
        self._lasting_tokens = max(1.0, LASTING * usual)
        self.index = {report.replica: i for i, report in enumerate(known)}
        self._figures = np.zeros((6 + len(self.methods), len(known)))
        loads = [(r.running, r.waiting, r.outstanding_tokens, r.free_slots) for r in known]
        self._figures[:4] = np.asarray(loads, dtype=np.float64).reshape(-1, 4).T
        self.running, self.waiting, self.outstanding, self.free, self.slower = self._figures[:5]
        self.counts = self._figures[5:]
        self.hosts = np.zeros((len(self.methods), len(known)), dtype=bool)
        self.healthy = np.asarray([report.healthy for report in known], dtype=bool)
        for i, report in enumerate(known):
            for name in report.methods:
                if name in self.numbers:
                    self.hosts[self.numbers[name], i] = report.healthy
            left = [*report.requests.values()][: report.running]
            self.running[i] += sum(map(self._lasting, left)) - len(left)
            share = self.running[i] / report.running if report.running else 1.0
            for name, count in report.running_by_method.items():
                self.counts[self.number(name), i] += share * count
        self.live = defaultdict[str, set[str]](set)
        for report in known:
            for name in report.methods if report.healthy else ():
                self.live[name].add(report.replica)
        self.unwell = {n for r in known if not r.healthy for n in r.methods} - self.live.keys()
        self.retime(table)

    def _lasting(self, tokens: int) -> float:
        """Return the share of a request for which one with this many tokens left counts: if it is
        about to end, it is no company for a new one. One that has outlived what was expected of it
        has a token left in every report, and nobody knows when it ends."""
        return min(1.0, tokens / self._lasting_tokens) if tokens > 1 else 1.0

    def number(self, method: str) -> int:
        """Return a method's row in `counts`."""
        return self.numbers.get(method, len(self.methods))

    def retime(self, table: RoutingTable | None) -> None:
        """Compare the replicas' step times with another version of the table.

        The table's live step times are those of a method's replicas taken together, and fast ones
        give more responses. So their mean counts as predicted right. A replica without others is
        never slow: its own responses correct the table.
        """
        self.table = table
        self.reading = np.zeros(len(self.methods) + 1)
        if table is not None:
            self.reading[:-1] = predict.reading_tokens(table)
        each = [1.0 if table is None else slowness(table, report) for report in self.reports]
        self.slower[:] = np.clip(each, 1.0 / MOST_SLOWER, MOST_SLOWER)
        answers = self.hosts / self.slower
        whole = np.maximum(answers.sum(axis=1), 1e-9)
        self.usual = np.exp((answers * np.log(self.slower)).sum(axis=1) / whole)

    def of(self, replicas: Indices) -> list[list[float]]:
        """Return the figures of replicas (by index): running, waiting, outstanding, free, slower,
        and the running requests by method, other methods last."""
        figures: list[list[float]] = self._figures[:, replicas].T.tolist()
        return figures

    def work(
        self, tokens: float = 0.0, method: int | None = None, unread: Floats | None = None
    ) -> Floats:
        """Return the replicas' burdens with a request of these output tokens, in tokens of a
        replica that is as fast as predicted: for each method [m, n], or for one [n].

        unread [n]: prompt tokens that each replica has to read for the request. None: all alike.
        """
        running = self.counts.sum(axis=0)
        rows = self.counts[:-1] if method is None else self.counts[method]
        others = (running - rows) / np.maximum(running, 1e-9)
        own: Floats | float = tokens
        if unread is not None:
            price = self.reading[:-1, None] if method is None else self.reading[method]
            own = tokens + price * unread
        return np.asarray((self.outstanding * (1.0 + others) + own) * self.slower)

    def least(self, method: str, tokens: float) -> int | None:
        """Return the healthy replica (by index) with the least work; None if there is none."""
        m = self.number(method)
        if m == len(self.methods) or not self.hosts[m].any():
            return None
        return int(np.where(self.hosts[m], self.work(tokens, m), np.inf).argmin())

    def add(self, replica: int, request: DecodeRequest) -> Added:
        """Count a request on a replica, at the end of the waiting line if there is one."""
        running = float(self.waiting[replica] <= 0.0)
        added = self._added(replica, request, request.outstanding(0), running)
        self.change(added, 1)
        return added

    def remove(self, replica: int, request: DecodeRequest, tokens: int, *, running: bool) -> None:
        """Take off a request that the replica's report counts with these tokens."""
        counted = self._lasting(tokens) if running else 0.0
        self.change(self._added(replica, request, tokens, counted), -1)

    def _added(self, replica: int, request: DecodeRequest, tokens: int, running: float) -> Added:
        # The slots that the replica reserves for the request while it runs.
        each = self.reports[replica].slots_each
        slots = each or len(request.prompt_token_ids) + request.outstanding(0)
        return Added(replica, self.number(request.method), running, tokens, slots)

    def change(self, added: Added, sign: int) -> None:
        """Add a request again, or take it off (-1)."""
        i = added.replica
        if added.running:
            self.running[i] += sign * added.running
            self.counts[added.method, i] += sign * added.running
            self.free[i] -= sign * added.slots
        else:
            self.waiting[i] += sign
        self.outstanding[i] += sign * added.tokens

    def report(self, replica: int) -> LoadReport:
        """Return a replica's report with what has changed since."""
        before = self.reports[replica]
        by_method = dict(before.running_by_method)
        for m, count in enumerate(self.counts[:-1, replica].tolist()):
            by_method[self.methods[m]] = math.ceil(count - 1e-6)
        numbers = {
            "running": math.ceil(max(0.0, self.running[replica]) - 1e-6),
            "waiting": int(max(0.0, self.waiting[replica])),
            "running_by_method": {name: count for name, count in by_method.items() if count > 0},
            "outstanding_tokens": int(max(0.0, self.outstanding[replica])),
            "free_slots": int(max(0.0, self.free[replica])),
        }
        return before.model_copy(update=numbers)


def slowness(table: RoutingTable, report: LoadReport) -> float:
    """Return the ratio of a replica's recent step time to the predicted one; 1 if it is unknown."""
    numbers = method_numbers(table)
    recent = {numbers[n]: s for n, s in report.recent_step_seconds.items() if n in numbers}
    if not recent:
        return 1.0
    batch = max(1.0, report.mean_batch)
    times = predict.StepTimes(table, report.mean_context or predict.usual_context(table))
    running = {numbers[n]: c for n, c in report.running_by_method.items() if c and n in numbers}
    if running.keys() & recent.keys():
        step = max(recent[m] for m in running if m in recent)
        predicted = times.mixed(running, batch)
    else:
        step, predicted = sum(recent.values()), sum(times.of(m, batch) for m in recent)
    return step / predicted if predicted > 0.0 else 1.0


@acceptance.once
def method_numbers(table: RoutingTable) -> dict[str, int]:
    """Return each method's index in the table."""
    return {name: m for m, name in enumerate(table.methods)}
