"""Who runs: a bounded waiting line, batches, and what ends a sequence between two steps."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence as Seq

from schemas import FinishReason
from workers.engine import EngineBusyError
from workers.torch_engine.parts import Drafter
from workers.torch_engine.sequence import Sequence
from workers.torch_engine.step import StepError, step
from workers.torch_engine.target import Target

log = logging.getLogger(__name__)

SMOOTHING = 0.1
"""Weight of the newest step in the moving averages."""


class Scheduler:
    """Owned by the stepper thread, but for `submit`, `stop` and the figures it publishes."""

    def __init__(
        self, target: Target, drafters: Seq[Drafter], *, context: int, max_waiting: int
    ) -> None:
        self._target = target
        self._drafters = drafters
        self._context = context
        self._capacity = target.pool.rows
        self._max_waiting = max_waiting
        self._work = threading.Condition()
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._stopping = False
        self.healthy = True
        self.mean_batch = 0.0
        self.step_seconds: dict[str, float] = {}

    def submit(self, sequence: Sequence) -> None:
        """Join the waiting line (any thread); raises EngineBusyError when it is full."""
        with self._work:
            if self._stopping:
                raise EngineBusyError("the engine is shut down: send the request elsewhere")
            places = self._capacity + self._max_waiting
            if len(self._waiting) + len(self._running) >= places:
                raise EngineBusyError(
                    f"{len(self._running)} requests run and {len(self._waiting)} wait "
                    f"(engine.max_waiting is {self._max_waiting}): try again later"
                )
            self._waiting.append(sequence)
            self._work.notify()

    def wake(self) -> None:
        """Have the stepper look for cancelled requests now (any thread)."""
        with self._work:
            self._work.notify()

    def stop(self) -> None:
        """End `run` before its next step (any thread); whoever is left ends as cancelled."""
        with self._work:
            self._stopping = True
            self._work.notify()

    def counts(self) -> tuple[int, int, int, int]:
        """Running and waiting sequences, tokens they may still emit, free KV slots."""
        with self._work:
            everyone = [*self._running, *self._waiting]
            free = (self._capacity - len(self._running)) * self._context
            outstanding = sum(max(0, s.remaining) for s in everyone)
            return len(self._running), len(self._waiting), outstanding, free

    def run(self) -> None:
        """The stepper thread's life: admit, step, retire, until `stop`."""
        try:
            while self._wait_for_work():
                for sequence in self._admit():
                    self._step([sequence])
                self._retire()
                if self._running:
                    self._step(self._running)
                    self._retire()
        except Exception:
            log.exception("the stepper thread died")
            self.healthy = False
        finally:
            self._end_all()

    def _wait_for_work(self) -> bool:
        with self._work:
            self._work.wait_for(lambda: self._stopping or self._running or self._waiting)
            return not self._stopping

    def _admit(self) -> list[Sequence]:
        """Move sequences from the line into free rows; those cancelled meanwhile just end."""
        admitted: list[Sequence] = []
        with self._work:
            gone = [s for s in self._waiting if s.stream.cancelled]
            for sequence in gone:
                self._waiting.remove(sequence)
            while self._waiting and len(self._running) < self._capacity:
                sequence = self._waiting.popleft()
                sequence.admit(self._target.pool.acquire())
                self._running.append(sequence)
                admitted.append(sequence)
        for sequence in gone:
            sequence.stream.finish("cancelled", sequence.stats("cancelled"))
        return admitted

    def _step(self, batch: Seq[Sequence]) -> None:
        clock = time.perf_counter()
        decoding = [s for s in batch if s.output_tokens]
        methods = {s.method.name for s in decoding}
        errors = step(list(batch), self._target)
        seconds = time.perf_counter() - clock
        for error in errors:
            self._fail(error)
        if not decoding or errors:
            return
        self.mean_batch = _blend(self.mean_batch or len(batch), len(batch))
        known = self.step_seconds
        self.step_seconds = known | {m: _blend(known.get(m, seconds), seconds) for m in methods}

    def _fail(self, error: StepError) -> None:
        log.error("%s", error, exc_info=error)
        if not error.attributable:
            self.healthy = False
        for sequence in error.sequences:
            self._end(sequence, "error", str(error))

    def _retire(self) -> None:
        """End what has finished or was cancelled."""
        for sequence in list(self._running):
            if sequence.finished is not None:
                self._end(sequence, sequence.finished)
            elif sequence.stream.cancelled:
                self._end(sequence, "cancelled")

    def _end(self, sequence: Sequence, reason: FinishReason, error: str | None = None) -> None:
        """Free everything a running sequence holds and tell its consumer."""
        with self._work:
            self._running.remove(sequence)
        for drafter in self._drafters:
            drafter.release(sequence)
        self._target.pool.release(sequence.row)
        sequence.lease = None
        sequence.stream.finish(reason, sequence.stats(reason), error)

    def _end_all(self) -> None:
        with self._work:
            self._stopping = True
            waiting = list(self._waiting)
            self._waiting.clear()
        reason: FinishReason = "cancelled" if self.healthy else "error"
        error = None if self.healthy else "the engine has failed"
        for sequence in list(self._running):
            self._end(sequence, reason, error)
        for sequence in waiting:
            sequence.stream.finish(reason, sequence.stats(reason), error)


def _blend(old: float, new: float) -> float:
    return (1.0 - SMOOTHING) * old + SMOOTHING * new
