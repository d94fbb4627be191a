"""A simulated replica: the rounds of the engines' schedulers, without an event per step."""

from collections import deque
from math import floor

from ops.simulate.cores import Machine
from ops.simulate.outcomes import Usage
from ops.simulate.replicas.batch import Batch
from ops.simulate.replicas.kept_rows import KeptRows
from ops.simulate.replicas.stretch import Stretch
from ops.simulate.workload import NEVER, Request
from schemas import LoadReport
from workers.replay_engine.engine import rows_of


class Replica:
    """A waiting queue, a batch and a clock.

    While no sequence joins or leaves the batch, step times differ by context length only, which
    grows evenly, so a stretch of steps is one event. As in the engines, changes happen at the end
    of a step: finished sequences leave, at most `prefill_chunk` prompt tokens are read while the
    others wait, and sequences whose prompt is read join. Its seconds are of work (`cores`); times
    of requests and reports are wall time.
    """

    def __init__(
        self, name: str, methods: tuple[str, ...], known: tuple[str, ...], machine: Machine
    ) -> None:
        """methods: those it hosts. known: all methods, in the order of their indices."""
        engine, self._cores, self._costs = machine.engine, machine.cores, machine.costs
        self._threads, self._stream = engine.threads, machine.stream_seconds
        self._at_work = 0.0
        self.name, self.methods, self._names = name, methods, known
        self._rows, self._chunk = rows_of(engine), engine.prefill_chunk
        self._places = self._rows + engine.max_waiting
        self._slots_each = min(engine.max_context, engine.kv_slots)
        self._kept = (
            KeptRows(engine.kv_slots // self._slots_each) if machine.conversations else None
        )
        self._report_prefixes = machine.report_prefixes
        self.waiting: deque[Request] = deque()
        self._reading: Request | None = None
        self._piece = 0
        self._budget = self._chunk
        self._batch = Batch(known)
        self._stretch = Stretch()
        self.next = NEVER
        """When `advance` is due, in seconds of work."""
        self.version = 0
        """Grows with every change of `next`."""
        self.changed = True
        """Whether anybody came or went since the last report."""
        self.busy_seconds = 0.0
        """That it has read or decoded."""
        self.batch_seconds = 0.0
        """The same of decode steps, times the sequences in each."""
        self.decode_seconds = 0.0
        self._began = 0.0
        self._read_seconds = 0.0
        self._recent: dict[str, float] = {}
        self._report: LoadReport | None = None

    @property
    def requests(self) -> list[Request]:
        """All that it has, the running ones first."""
        reading = [] if self._reading is None else [self._reading]
        return [*self._batch.requests, *reading, *self.waiting]

    @property
    def ongoing(self) -> int:
        """Return the number of its requests."""
        return len(self._batch) + (self._reading is not None) + len(self.waiting)

    def take(self, request: Request) -> bool:
        """Queue a request; return False if the queue is full."""
        running = len(self._batch) + (self._reading is not None)
        if self.ongoing >= self._places:
            return False
        self.waiting.append(request)
        request.unread, request.held = request.prompt, 0
        self.changed = True
        if self.next == NEVER:
            self._budget = self._chunk
            self._go_on()
        elif running < self._rows:
            self._end_step()
        return True

    def leave(self, request: Request) -> bool:
        """End a request before its answer is complete. Return False if it ends with the work that
        is under way."""
        if request in self.waiting:
            self.waiting.remove(request)
            self.changed = True
            return True
        if request is not self._reading:
            self._end_step()
            self._batch.cut(request, max(1, self._stretch.steps))
        return False

    def _end_step(self) -> None:
        """End the present stretch with the step under way."""
        if self._stretch.shortened(self._cores.work):
            self._due(self._stretch.end, self._passing_on)

    def advance(self) -> list[Request]:
        """Finish the work that is due now; return the requests that ended."""
        ended: list[Request] = []
        took = self._cores.now - self._began
        self.busy_seconds += took
        if self._stretch.steps:
            self.decode_seconds += took
            self.batch_seconds += len(self._batch) * took
            self._decoded(ended)
            self._budget = self._chunk
        else:
            self._read_seconds += took
            self._read(ended)
        self._go_on()
        return ended

    def usage(self, there: float) -> Usage:
        """Return what it did in the seconds that it existed."""
        return Usage(there, self.busy_seconds, self.decode_seconds, self.batch_seconds)

    def die(self) -> None:
        """Stop all work."""
        self._due(NEVER)

    def report(self, stale: float) -> LoadReport:
        """Return its load report: new after any change, else at most `stale` seconds old."""
        known = self._report
        if known is None or self.changed or self._cores.now - known.time > stale:
            known = self._report = self._reported()
            self.changed = False
        return known

    def remaining(self) -> dict[str, int]:
        """Return, by request, the tokens that loads count for it (`DecodeRequest.outstanding`)."""
        return {str(request.number): self._left(request) for request in self.requests}

    def _left(self, request: Request) -> int:
        emitted = self._out(request) if request.begun != NEVER else 0.0
        return max(1, round(request.counted - emitted))

    def emitted(self, request: Request) -> int:
        """Return the tokens that a running request has emitted; 0 before its first."""
        if request.begun == NEVER:
            return 0
        return min(request.path.tokens - 1, floor(self._out(request)))

    def _out(self, request: Request) -> float:
        return self._batch.out(request, self._stretch.done(self._cores.work))

    def _go_on(self) -> None:
        """Begin the next piece of work: part of a prompt, else steps until a sequence ends."""
        self._began = self._cores.now
        if self._begin_reading():
            return
        if not self._batch:
            self._stretch = Stretch()
            if self.waiting or self._reading is not None:
                self._budget = self._chunk
                self._begin_reading()
            else:
                self._due(NEVER)
            return
        room = len(self._batch) + (self._reading is not None) < self._rows
        more = self._reading is not None or (room and self.waiting)
        # a single step if others are to join, else steps until a sequence ends
        batch = self._batch
        steps = 1 if more else batch.left
        first = self._costs.step(batch.counts, batch.context, batch.width)
        self._recent |= {self._names[m]: first for m, n in enumerate(batch.counts) if n}
        self._stretch = stretch = Stretch(steps, self._cores.work, first)
        if steps > 1:
            context = batch.context + batch.rate * (steps - 1)
            last = self._costs.step(batch.counts, context, batch.width)
            stretch.longer = (last - first) / (steps - 1)
        self._due(stretch.end, self._passing_on)

    def _begin_reading(self) -> bool:
        """Read on in a prompt, or begin the next if a row is free and the round has tokens left."""
        if self._budget <= 0:
            return False
        if self._reading is None:
            if not self.waiting or len(self._batch) >= self._rows:
                return False
            self._reading = self.waiting.popleft()
            self.changed = True
            if self._reading.admitted == NEVER:
                self._reading.admitted = self._cores.now
            if self._kept is not None:
                self._reading.held = self._kept.take(self._reading.scope, len(self._batch) + 1)
                self._reading.unread -= self._reading.held
        request = self._reading
        self._piece = min(request.unread, self._budget)
        self._budget -= self._piece
        self._stretch = Stretch()
        read = request.prompt - request.held
        seconds = self._costs.prefill(request.method, read)
        self._due(self._cores.work + seconds * self._piece / read)
        return True

    def _read(self, ended: list[Request]) -> None:
        request = self._reading
        assert request is not None
        request.unread -= self._piece
        if request.unread and not request.cut:
            return
        self._reading = None
        self.changed = True
        if request.cut:
            request.path = request.path.until(0)
            self._ended(request, ended)
            return
        if request.first == NEVER:
            request.first = self._cores.now
        if not request.path.steps:
            self._ended(request, ended)
            return
        request.stalled_seconds = -self._read_seconds
        self._batch.join(request)

    def _decoded(self, ended: list[Request]) -> None:
        """The stretch is over."""
        steps, self._stretch = self._stretch.steps, Stretch()
        for request in self._batch.decode(steps):
            request.stalled_seconds += self._read_seconds
            self._ended(request, ended)

    def _ended(self, request: Request, ended: list[Request]) -> None:
        ended.append(request)
        self.changed = True
        if self._kept is not None:
            self._kept.keep(request.scope, request.told)

    @property
    def _passing_on(self) -> float:
        """Threads at work elsewhere on what the present steps emit, on the mean."""
        return self._stream * len(self._batch) / self._stretch.first if self._stream else 0.0

    def _due(self, moment: float, beside: float = 0.0) -> None:
        """Schedule the next event. Until then this replica and `beside` others keep their threads
        busy."""
        at_work = 0.0 if moment == NEVER else self._threads + beside
        self._cores.busy += at_work - self._at_work
        self._at_work = at_work
        self.next = moment
        self.version += 1

    def _reported(self) -> LoadReport:
        running = len(self._batch) + (self._reading is not None)
        by_method = {self._names[m]: n for m, n in enumerate(self._batch.counts) if n}
        if self._reading is not None:
            name = self._names[self._reading.method]
            by_method[name] = by_method.get(name, 0) + 1
        left = self.remaining()
        return LoadReport(
            replica=self.name,
            methods=self.methods,
            running=running,
            waiting=len(self.waiting),
            running_by_method=by_method,
            outstanding_tokens=sum(left.values()),
            requests=left,
            mean_batch=float(len(self._batch)),
            recent_step_seconds=dict(self._recent),
            free_slots=(self._rows - running) * self._slots_each,
            slots_each=self._slots_each,
            prefixes=self._kept.hashes() if self._kept and self._report_prefixes else None,
            time=self._cores.now,
        )
