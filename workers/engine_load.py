"""A vLLM scheduler's load, from its figures and from the unfinished answers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Protocol

from schemas import DecodeRequest

SMOOTHING = 0.1
"""Weight of the newest step in the moving averages of load reports."""


class Underway(Protocol):
    """An unfinished answer, as the load counts it."""

    request: DecodeRequest

    @property
    def output_tokens(self) -> int:
        """Return the tokens emitted so far."""
        ...

    @property
    def outstanding(self) -> int:
        """Return the tokens that the load still counts for it."""
        ...


class EngineLoad:
    """Publish `workers.engine.Figures`. Read from any thread. The event loop writes; where a server
    is polled, the polling thread calls `iterated`."""

    def __init__(self) -> None:
        self.mean_batch = self.mean_context = 0.0
        self.step_seconds: dict[str, float] = {}
        self.slots = 0
        self.slots_each = 0
        self._lock = threading.Lock()
        self._answers: dict[str, Underway] = {}
        self._decoding: Counter[str] = Counter()
        self._begun: set[str] = set()
        self._moved = time.monotonic()
        self._usage = 0.0
        self._waiting = 0

    def begin(self, answer: Underway) -> None:
        with self._lock:
            if not self._answers:
                self._moved = time.monotonic()
            self._answers[answer.request.request_id] = answer

    def end(self, answer: Underway) -> None:
        request = answer.request
        with self._lock:
            self._answers.pop(request.request_id, None)
            if request.request_id in self._begun:
                self._begun.remove(request.request_id)
                self._decoding[request.method] -= 1

    def begun(self, answer: Underway) -> None:
        """Count a response that has its first token. Counting on arrival keeps the cost of a step
        linear in the batch."""
        with self._lock:
            self._begun.add(answer.request.request_id)
            self._decoding[answer.request.method] += 1

    def stepped(self, method: str, seconds: float) -> None:
        """Add the seconds of one response's decode step."""
        known = self.step_seconds
        self.step_seconds = known | {method: blend(known.get(method), seconds)}

    def iterated(self, running: int, waiting: int, usage: float) -> None:
        """Note an engine step: running and waiting sequences. usage: used share of the KV cache."""
        self._moved = time.monotonic()
        self._usage, self._waiting = usage, waiting
        if running:
            self.mean_batch = blend(self.mean_batch, running)
            context = usage * self.slots / running
            self.mean_context = blend(self.mean_context, context)

    def stalled(self, seconds: float) -> bool:
        """Return whether there are unfinished answers and no step for so many seconds."""
        with self._lock:
            return bool(self._answers) and time.monotonic() - self._moved > seconds

    def decoding(self) -> dict[str, int]:
        """Return the begun answers of each method that has any."""
        with self._lock:
            return {method: count for method, count in self._decoding.items() if count}

    def counts(self) -> tuple[int, int, int, int]:
        """Return running and waiting answers, tokens they may still emit, and free KV slots."""
        running, waiting = self._running_and_waiting()
        outstanding = sum(answer.outstanding for answer in [*running, *waiting])
        free = int(self.slots * (1.0 - self._usage))
        return len(running), len(waiting), outstanding, free

    def requests(self) -> dict[str, int]:
        """Return the tokens that each response may still emit, by request id, running ones
        first."""
        running, waiting = self._running_and_waiting()
        return {a.request.request_id: a.outstanding for a in [*running, *waiting]}

    def running_by_method(self) -> dict[str, int]:
        """Return the running answers of each method that has any."""
        running, _ = self._running_and_waiting()
        return dict(Counter(answer.request.method for answer in running))

    def _running_and_waiting(self) -> tuple[list[Underway], list[Underway]]:
        """Return the waiting answers: the newest, as many as the scheduler reported after its
        last step. A response whose prompt is being read is running."""
        with self._lock:
            everyone = sorted(self._answers.values(), key=lambda a: a.output_tokens == 0)
            begun = sum(answer.output_tokens > 0 for answer in everyone)
            running = max(begun, len(everyone) - self._waiting)
        return everyone[:running], everyone[running:]


def blend(old: float | None, new: float) -> float:
    """Return a moving average after another value. old: None or 0 before the first."""
    return (1.0 - SMOOTHING) * old + SMOOTHING * new if old else new
