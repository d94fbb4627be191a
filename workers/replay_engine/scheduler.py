"""The scheduler of a replayed replica, with the rounds of the torch engine's."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence

from schemas import FinishReason
from workers.engine import EngineBusyError
from workers.replay_engine.sequence import ReplaySequence
from workers.replay_engine.step_times import StepTimes

SMOOTHING = 0.1
"""Weight of the newest step in the moving averages."""


class Scheduler:
    """Replay sequences with one waiting line, one batch and one clock.

    rows: sequences that may run at once. context: tokens of a sequence at most. chunk: prompt
    tokens read between two steps of the running sequences. now: the event loop's seconds.
    """

    def __init__(
        self,
        step_times: StepTimes,
        now: Callable[[], float],
        *,
        rows: int,
        context: int,
        max_waiting: int,
        chunk: int,
    ) -> None:
        self._step_times = step_times
        self._now = now
        self._rows, self.slots_each = rows, context
        self._max_waiting, self._chunk = max_waiting, chunk
        self._lock = threading.Lock()
        self._waiting: deque[ReplaySequence] = deque()
        self._running: list[ReplaySequence] = []
        self._stopped = False
        self.mean_batch = self.mean_context = 0.0
        self.step_seconds: dict[str, float] = {}

    def submit(self, sequence: ReplaySequence) -> None:
        """Join the waiting line; raises EngineBusyError when it is full."""
        with self._lock:
            if self._stopped:
                raise EngineBusyError("the engine is shut down: send the request elsewhere")
            if len(self._waiting) + len(self._running) >= self._rows + self._max_waiting:
                raise EngineBusyError(
                    f"{len(self._running)} requests run and {len(self._waiting)} wait "
                    f"(engine.max_waiting is {self._max_waiting}): try again later"
                )
            self._waiting.append(sequence)

    def counts(self) -> tuple[int, int, int, int]:
        """Return running and waiting sequences, tokens they may still emit, and free token
        slots."""
        with self._lock:
            everyone = [*self._running, *self._waiting]
            free = (self._rows - len(self._running)) * self.slots_each
            outstanding = sum(s.outstanding for s in everyone)
            return len(self._running), len(self._waiting), outstanding, free

    def running_by_method(self) -> dict[str, int]:
        """Return the running sequences of each method that has any."""
        with self._lock:
            return dict(Counter(s.request.method for s in self._running))

    def requests(self) -> dict[str, int]:
        """Return the tokens that each request may still emit, by id, running ones first."""
        with self._lock:
            everyone = [*self._running, *self._waiting]
            return {s.request.request_id: s.outstanding for s in everyone}

    def rounds(self) -> Iterator[float]:
        """Yield the seconds of one piece of work after the other until all sequences have ended.
        A piece's tokens are emitted when the next one is asked for."""
        while True:
            self._retire()
            with self._lock:
                if not self._waiting and not self._running:
                    return
            yield from self._read_prompts()
            self._retire()
            if decoding := [s for s in self._running if s.output]:
                yield from self._step(decoding)

    def stop(self, reason: FinishReason, error: str | None = None) -> None:
        """End all sequences and refuse new ones."""
        with self._lock:
            self._stopped = True
            everyone = [*self._running, *self._waiting]
            self._running.clear()
            self._waiting.clear()
        for sequence in everyone:
            sequence.finished = reason
            sequence.stream.finish(reason, sequence.stats(reason), error)

    def _read_prompts(self) -> Iterator[float]:
        """Read up to a chunk of tokens, the oldest prompt first; a prompt's end emits a token."""
        budget = self._chunk
        while budget > 0 and (sequence := self._unread_one()) is not None:
            tokens = min(sequence.unread, budget)
            budget -= tokens
            answer = sequence.answer
            yield answer.prefill_seconds * tokens / answer.prompt_tokens
            sequence.unread -= tokens
            if sequence.unread == 0 and sequence.finished is None:
                sequence.emit({}, self._now())

    def _unread_one(self) -> ReplaySequence | None:
        """Return the sequence whose prompt is being read, else admit the next if there is room."""
        for sequence in self._running:
            if sequence.unread > 0:
                return sequence
        with self._lock:
            if not self._waiting or len(self._running) == self._rows:
                return None
            sequence = self._waiting.popleft()
            sequence.admit(self._now())
            self._running.append(sequence)
            return sequence

    def _step(self, batch: Sequence[ReplaySequence]) -> Iterator[float]:
        methods = sorted({s.request.method for s in batch})
        counts = Counter(s.request.method for s in batch)
        seconds = sum(counts[method] * self._seconds(method, batch) for method in methods)
        seconds /= len(batch)
        yield seconds
        for sequence in batch:
            if sequence.finished is None:
                sequence.emit(counts, self._now())
        self.mean_batch = _blend(self.mean_batch or len(batch), len(batch))
        context = sum(s.context for s in batch) / len(batch)
        self.mean_context = _blend(self.mean_context or context, context)
        known = self.step_seconds
        self.step_seconds = known | {m: _blend(known.get(m, seconds), seconds) for m in methods}

    def _seconds(self, method: str, batch: Sequence[ReplaySequence]) -> float:
        """Return the seconds of a step if the whole batch were this method's. A shared step
        takes the mean over its sequences: one forward verifies all their rows."""
        context = sum(s.context for s in batch) / len(batch)
        paces = [s.answer.pace for s in batch if s.request.method == method]
        recorded = self._step_times.seconds(method, len(batch), context)
        return recorded * sum(paces) / len(paces)

    def _retire(self) -> None:
        """End finished and cancelled sequences."""
        with self._lock:
            everyone = [*self._running, *self._waiting]
            ended = [s for s in everyone if s.finished is not None or s.stream.cancelled]
            for sequence in ended:
                (self._running if sequence in self._running else self._waiting).remove(sequence)
        for sequence in ended:
            reason = sequence.finished or "cancelled"
            sequence.stream.finish(reason, sequence.stats(reason))


def _blend(old: float, new: float) -> float:
    return (1.0 - SMOOTHING) * old + SMOOTHING * new
