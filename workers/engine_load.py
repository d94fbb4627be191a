"""Responses in progress, and the load that those of a vLLM scheduler make."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, islice
from typing import Any, Protocol

from tokenizers import Tokenizer

from schemas import DecodeChunk, DecodeRequest, DecodeStats, EngineConfig, FinishReason, LoadReport
from schemas.prefixes import REPORTED, prefix_hashes
from workers.engine import EngineBusyError
from workers.text import AnswerText, is_looping

SMOOTHING = 0.1
"""Weight of the newest step in the moving averages of load reports."""


class EngineLoad:
    """Publish `Figures`. Read from any thread. The event loop writes; where a server
    is polled, the polling thread calls `iterated`."""

    def __init__(self) -> None:
        self.mean_batch = self.mean_context = 0.0
        self.step_seconds: dict[str, float] = {}
        self.slots = 0
        self.slots_each = 0
        self._lock = threading.Lock()
        self._answers: dict[str, Answer] = {}
        self._decoding: Counter[str] = Counter()
        self._begun: set[str] = set()
        self._moved = time.monotonic()
        self._usage = 0.0
        self._waiting = 0

    def begin(self, answer: Answer) -> None:
        with self._lock:
            if not self._answers:
                self._moved = time.monotonic()
            self._answers[answer.request.request_id] = answer

    def end(self, answer: Answer) -> None:
        request = answer.request
        with self._lock:
            self._answers.pop(request.request_id, None)
            if request.request_id in self._begun:
                self._begun.remove(request.request_id)
                self._decoding[request.method] -= 1

    def begun(self, answer: Answer) -> None:
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
        """Return whether there are unfinished responses and no step for so many seconds."""
        with self._lock:
            return bool(self._answers) and time.monotonic() - self._moved > seconds

    def decoding(self) -> dict[str, int]:
        """Return the begun responses of each method that has any."""
        with self._lock:
            return {method: count for method, count in self._decoding.items() if count}

    @property
    def free_slots(self) -> int:
        """Tokens that the KV cache has room for."""
        return int(self.slots * (1.0 - self._usage))

    def underway(self) -> tuple[list[Answer], list[Answer]]:
        """Return the running and the waiting responses. The newest wait, as many as the scheduler
        reported after its last step: one whose prompt is being read is running."""
        with self._lock:
            everyone = sorted(self._answers.values(), key=lambda a: a.output_tokens == 0)
            begun = sum(answer.output_tokens > 0 for answer in everyone)
            running = max(begun, len(everyone) - self._waiting)
        return everyone[:running], everyone[running:]

    def check_room(self, config: EngineConfig, place: str = "") -> None:
        """Raise EngineBusyError where the waiting line is full. place: of the waiting requests."""
        running, waiting = self.underway()
        if len(running) + len(waiting) >= config.max_batch + config.max_waiting:
            raise EngineBusyError(
                f"{len(running)} requests run and {len(waiting)} wait{place} (engine.max_waiting "
                f"is {config.max_waiting}): try again later"
            )


def blend(old: float | None, new: float) -> float:
    """Return a moving average after another value. old: None or 0 before the first."""
    return (1.0 - SMOOTHING) * old + SMOOTHING * new if old else new


class RecentPrefixes:
    """Hash the prefixes of the newest texts, as many tokens as the KV cache has slots.

    The cache evicts the least recently used prefixes too. Safe in any thread.
    """

    def __init__(self) -> None:
        self._texts: deque[tuple[int, Sequence[bytes]]] = deque(maxlen=REPORTED)
        """Tokens and hashes of each text, the newest first."""

    def add(self, tokens: Sequence[int], scope: str, slots: int) -> None:
        """Add a text that was read or written. slots: of the KV cache."""
        self._texts.appendleft((len(tokens), prefix_hashes(tokens, scope)))
        while len(self._texts) > 1 and sum(count for count, _ in self._texts) > slots:
            self._texts.pop()

    def hashes(self) -> bytes:
        """Return at most REPORTED hashes for a load report, those of the newest texts first."""
        every = chain.from_iterable(hashes for _, hashes in self._texts.copy())
        return b"".join(islice(dict.fromkeys(every), REPORTED))


def by_position(steps: Sequence[tuple[int, int]]) -> dict[str, tuple[int, ...]]:
    """Return how many steps drafted, and how many accepted, a token at each position.

    steps: the drafted and the accepted tokens of each.
    """
    positions = range(max((drafted for drafted, _ in steps), default=0))
    return {
        "drafted_by_position": tuple(sum(d > at for d, _ in steps) for at in positions),
        "accepted_by_position": tuple(sum(a > at for _, a in steps) for at in positions),
    }


class Answer:
    """A request's tokens, text, steps and times.

    tokens: prompt and response. prompt_tokens: those before the first emitted one, a begun
    response's among them. by_method: sequences of the steps after the first.
    """

    def __init__(self, request: DecodeRequest, tokenizer: Tokenizer, eos: Collection[int]) -> None:
        self.request = request
        self.tokens: list[int] = list(request.known_token_ids)
        self.prompt_tokens = len(self.tokens)
        self.by_method: Counter[str] = Counter()
        self._text = AnswerText(tokenizer, eos, request.sampling)
        self._text.go_on(request.answered_token_ids)
        self._steps = self._cached = 0
        self._submitted = time.perf_counter()
        self._first = self._last = 0.0

    @property
    def output_tokens(self) -> int:
        """Tokens emitted so far."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def answer_index(self) -> int:
        """The next token's index in the response, which another replica may have begun."""
        return len(self.tokens) - len(self.request.prompt_token_ids)

    @property
    def outstanding(self) -> int:
        """Tokens that the load still counts for it."""
        return self.request.outstanding(self.answer_index)

    def stats(self, reason: FinishReason) -> DecodeStats:
        """Return the response's statistics so far."""
        request, later = self.request, max(1, self._steps - 1)
        seconds = self._last - self._first
        return DecodeStats(
            request_id=request.request_id,
            method=request.method,
            temperature=request.sampling.temperature,
            prompt_tokens=self.prompt_tokens,
            cached_prompt_tokens=self._cached,
            output_tokens=self.output_tokens,
            context_length=len(self.tokens),
            first_token_seconds=self._first - self._submitted if self._first else 0.0,
            decode_seconds=seconds,
            total_seconds=(self._last or time.perf_counter()) - self._submitted,
            mean_batch=self.by_method.total() / later or 1.0,
            batch_by_method={name: count / later for name, count in self.by_method.items()},
            finish_reason=reason,
            looping=is_looping(self.tokens[len(request.prompt_token_ids) :]),
            **self._counts(seconds),
        )

    def _counts(self, seconds: float) -> dict[str, Any]:  # noqa: ARG002
        """Return what the engine tells of the response's steps and drafts, and of its `seconds` of
        decoding."""
        return {"target_steps": self._steps}


class ScheduledAnswer(Answer):
    """A response of a vLLM scheduler."""

    def __init__(
        self, request: DecodeRequest, tokenizer: Tokenizer, eos: Collection[int], load: EngineLoad
    ) -> None:
        super().__init__(request, tokenizer, eos)
        self._load, self._queued = load, 0.0

    def failed(self, message: str, *, request_fault: bool = False) -> DecodeChunk:
        """Return the last chunk of a response that the engine gave up."""
        return DecodeChunk(
            request_id=self.request.request_id,
            text="",
            finish_reason="error",
            error=message,
            request_fault=request_fault,
            stats=self.stats("error"),
        )

    def _counts(self, seconds: float) -> dict[str, Any]:
        """See Answer. vLLM does not divide a step's seconds into drafting, verification and
        sampling, so all of them are `other_seconds`."""
        more = {"queue_seconds": self._queued, "other_seconds": seconds}
        return super()._counts(seconds) | more

    def _stepped(self) -> None:
        """Count a step that brought tokens."""
        now = time.perf_counter()
        if self._steps:
            self.by_method.update(self._load.decoding() or {self.request.method: 1})
            self._load.stepped(self.request.method, now - self._last)
        else:
            self._load.begun(self)
            self._first = now
        self._steps += 1
        self._last = now


class Figures(Protocol):
    """The load figures that a scheduler publishes."""

    mean_batch: float
    mean_context: float
    step_seconds: dict[str, float]
    slots_each: int

    @property
    def free_slots(self) -> int:
        """Tokens that the KV cache has room for."""
        ...

    def underway(self) -> tuple[Sequence[Answer], Sequence[Answer]]:
        """Return the running and the waiting responses."""
        ...


def load_report(
    replica: str, methods: Iterable[str], scheduler: Figures, *, healthy: bool
) -> LoadReport:
    """Return a replica's load at this moment."""
    running, waiting = scheduler.underway()
    everyone = [*running, *waiting]
    return LoadReport(
        replica=replica,
        methods=tuple(methods),
        running=len(running),
        waiting=len(waiting),
        running_by_method=dict(Counter(one.request.method for one in running)),
        outstanding_tokens=sum(one.outstanding for one in everyone),
        requests={one.request.request_id: one.outstanding for one in everyone},
        mean_batch=scheduler.mean_batch,
        mean_context=scheduler.mean_context,
        recent_step_seconds=scheduler.step_seconds,
        free_slots=scheduler.free_slots,
        slots_each=scheduler.slots_each,
        healthy=healthy,
        time=time.time(),
    )
