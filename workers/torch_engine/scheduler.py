"""The scheduler of sequences: a bounded waiting line, batches, and ends between steps."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from schemas import FinishReason
from workers.drafting.lookup.past import PastAnswers
from workers.engine import EngineBusyError, RequestFaultError
from workers.engine_load import blend
from workers.torch_engine.drafter_guard import DrafterGuard
from workers.torch_engine.interfaces import Drafter
from workers.torch_engine.method import Method
from workers.torch_engine.models.kv_pool import KvPool, Lease
from workers.torch_engine.models.prefix_cache import Holding, PrefixCache
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.step import NotANumberError, StepError, read_chunk, step
from workers.torch_engine.target import Target

log = logging.getLogger(__name__)

FAILED_STEPS = 3
"""NaN failures, or failures without a request too, in a row after which the engine is unhealthy."""


@dataclass(frozen=True)
class Limits:
    """How much a scheduler admits and reads at a time.

    rows: sequences that may run at once; a larger pool only remembers more prefixes. capacity:
    tokens of one sequence, prompt and response. max_waiting: requests in the waiting line. chunk:
    prompt tokens read between two steps of the running sequences. They have a forward of their own,
    since a joint one pads every row's attention to the chunk's width. joint: prompts of at most
    this many tokens together are read in one forward. prefix_cache: keep the rows of ended
    sequences for prompts that begin alike.
    """

    rows: int
    capacity: int
    max_waiting: int
    chunk: int
    joint: int
    prefix_cache: bool


class Scheduler:
    """Owned by the stepper thread, except for `submit`, `stop` and the figures it publishes.

    past: takes every method's answers, for drafters that look them up.
    """

    def __init__(
        self,
        target: Target,
        methods: Mapping[str, Method],
        drafters: Sequence[Drafter],
        guard: DrafterGuard,
        limits: Limits,
        past: PastAnswers,
    ) -> None:
        self.target = target
        self._methods = methods
        self._limits, self.slots_each = limits, limits.capacity
        self._rows = Rows(target.pool, methods, drafters, guard, remembers=limits.prefix_cache)
        self.prefixes = self._rows.prefixes
        self._past = past
        self._work = threading.Condition()
        self._waiting: deque[DecodeSequence] = deque()
        self._running: list[DecodeSequence] = []
        self._stopping, self.healthy, self._failed_steps = False, True, 0
        self._round_began: float | None = None
        self.mean_batch = self.mean_context = 0.0
        self.step_seconds: dict[str, float] = {}

    def submit(self, sequence: DecodeSequence) -> None:
        """Join the waiting line (any thread); raises EngineBusyError when it is full."""
        with self._work:
            if self._stopping:
                raise EngineBusyError("the engine is shut down: send the request elsewhere")
            slots = self._limits.rows + self._limits.max_waiting
            if len(self._waiting) + len(self._running) >= slots:
                raise EngineBusyError(
                    f"{len(self._running)} requests run and {len(self._waiting)} wait "
                    f"(engine.max_waiting is {self._limits.max_waiting}): try again later"
                )
            self._waiting.append(sequence)
            self._work.notify()

    def wake(self) -> None:
        """Make the stepper look for cancelled requests now (any thread)."""
        with self._work:
            self._work.notify()

    def stop(self) -> None:
        """End `run` before its next step (any thread); remaining requests end as cancelled."""
        with self._work:
            self._stopping = True
            self._work.notify()

    def stalled(self, seconds: float) -> bool:
        """Return whether the present round has taken longer (any thread)."""
        began = self._round_began
        return began is not None and time.monotonic() - began > seconds

    @property
    def free_slots(self) -> int:
        """Tokens that the KV pool has room for (any thread)."""
        return (self._limits.rows - len(self._running)) * self.slots_each

    def underway(self) -> tuple[list[DecodeSequence], list[DecodeSequence]]:
        """Return the running and the waiting sequences (any thread)."""
        with self._work:
            return [*self._running], [*self._waiting]

    def run(self) -> None:
        """Run rounds until `stop`."""
        try:
            while self._wait_for_work():
                self._round_began = time.monotonic()
                self.round()
                self._round_began = None
        except Exception:
            log.exception("the stepper thread died")
            self.healthy = False
        finally:
            self._end_all()

    def round(self) -> None:
        """Read a chunk of prompts, decode a step of all begun sequences, and end finished ones."""
        self._past.work()
        self._retire()
        self.target.pool.settle()
        self._read_prompts()
        self._retire()
        decoding = [s for s in self._running if s.output_tokens]
        if decoding:
            self._step(decoding)
            self._retire()

    def _wait_for_work(self) -> bool:
        """Wait for work, indexing past responses meanwhile; return False after `stop`."""
        while not self._wanted() and self._past.work():
            pass
        with self._work:
            self._work.wait_for(self._wanted)
            return not self._stopping

    def _wanted(self) -> bool:
        return bool(self._stopping or self._running or self._waiting)

    def _read_prompts(self) -> None:
        """Read up to a chunk of prompt tokens, oldest prompt first, while decoding sequences
        wait. A prompt's end emits a token."""
        decoding = [s for s in self._running if s.output_tokens]
        budget, clock = self._limits.chunk, time.perf_counter()
        while budget > 0 and (prompts := self._unread(budget)):
            tokens = min(sum(prompt.unread for prompt in prompts), budget)
            budget -= tokens
            if tokens < prompts[0].unread:
                method = self._methods[prompts[0].method]
                errors = read_chunk(prompts[0], tokens, self.target, method)
            else:
                errors = step(prompts, self.target, self._methods)
            for error in errors:
                self._fail(error)
        if budget < self._limits.chunk:
            seconds = time.perf_counter() - clock
            for sequence in decoding:
                sequence.seconds["stalled_seconds"] += seconds

    def _unread(self, budget: int) -> list[DecodeSequence]:
        """Return the oldest unread prompt, and the next ones that are read with it."""
        unread = [s for s in self._running if not s.output_tokens]
        together, room = list[DecodeSequence](), min(self._limits.joint, budget)
        while (prompt := unread.pop(0) if unread else self._admitted(together, room)) is not None:
            if together and prompt.unread > room:
                break
            together.append(prompt)
            room -= prompt.unread
        return together

    def _admitted(self, together: Sequence[DecodeSequence], room: int) -> DecodeSequence | None:
        """Admit the next waiting sequence; None if there is none, no row is free, or it should
        wait until these are read, whose rows may then hold its prompt.
        """
        with self._work:
            if not self._waiting or len(self._running) == self._limits.rows:
                return None
            sequence = self._waiting[0]
        # Without the lock, as searching takes time: only this thread takes from the line.
        found = self._rows.found(sequence, self._running) if together else 0
        if together and len(sequence.tokens) - found > room:
            return None
        lease = self._rows.take(sequence, self._running)
        with self._work:
            self._waiting.popleft()
            sequence.admit(lease)
            self._running.append(sequence)
        return sequence

    def _step(self, batch: list[DecodeSequence]) -> None:
        """Decode one step and update the load's figures."""
        clock, methods = time.perf_counter(), {s.method for s in batch}
        errors = step(batch, self.target, self._methods)
        seconds = time.perf_counter() - clock
        for error in errors:
            self._fail(error)
        if errors:
            return
        self._failed_steps = 0
        self.mean_batch = blend(self.mean_batch, len(batch))
        context = sum(len(s.tokens) for s in batch) / len(batch)
        self.mean_context = blend(self.mean_context, context)
        known = self.step_seconds
        self.step_seconds = known | {m: blend(known.get(m), seconds) for m in methods}

    def _fail(self, error: StepError) -> None:
        cause = error.__cause__
        if isinstance(cause, RequestFaultError):
            log.warning("%s", cause)
            self._end(error.sequence, "error", cause)
            return
        log.error("%s", error, exc_info=error)
        nan = isinstance(cause, NotANumberError)
        self._failed_steps += nan
        self.healthy &= self._failed_steps < FAILED_STEPS
        self._end(error.sequence, "error", error)
        # A client may send requests that fail in a row, so only what fails without them counts.
        self._failed_steps += self.healthy and not nan and not self.target.works()
        self.healthy &= self._failed_steps < FAILED_STEPS

    def _retire(self) -> None:
        """End finished and cancelled sequences."""
        for sequence in list(self._running):
            if sequence.finished is not None:
                self._end(sequence, sequence.finished)
            elif sequence.stream.cancelled:
                self._end(sequence, "cancelled")
        with self._work:
            gone = [s for s in self._waiting if s.stream.cancelled]
            for sequence in gone:
                self._waiting.remove(sequence)
        for sequence in gone:
            sequence.stream.finish("cancelled", sequence.stats("cancelled"))

    def _end(
        self, sequence: DecodeSequence, reason: FinishReason, error: Exception | None = None
    ) -> None:
        """Tell a running sequence's consumer, then free everything it holds.

        The consumer is told first, so that a failing release delays no response. The load stops
        counting the sequence at that moment.
        """
        with self._work:
            self._running.remove(sequence)
            sequence.stream.finish(
                reason,
                sequence.stats(reason),
                None if error is None else str(error),
                request_fault=isinstance(error, RequestFaultError),
            )
        self._rows.give_back(sequence, degraded=reason == "error")
        if reason != "error" and sequence.request.kept:
            answer = sequence.tokens[sequence.prompt_tokens :]
            self._past.add(sequence.request.scope, answer)

    def _end_all(self) -> None:
        """End all requests; their rows go with the engine."""
        with self._work:
            self._stopping = True
            everyone = [*self._running, *self._waiting]
            self._running.clear()
            self._waiting.clear()
        reason: FinishReason = "cancelled" if self.healthy else "error"
        error = None if self.healthy else "the engine has failed"
        for sequence in everyone:
            sequence.stream.finish(reason, sequence.stats(reason), error)


class Rows:
    """Give sequences rows with as much of their prompts as other rows hold and their drafters
    can continue from, and take the rows back.

    remembers: whether rows are searched and kept (`engine.prefix_cache`).
    """

    def __init__(
        self,
        pool: KvPool,
        methods: Mapping[str, Method],
        drafters: Sequence[Drafter],
        guard: DrafterGuard,
        *,
        remembers: bool,
    ) -> None:
        self.prefixes = PrefixCache(pool, self._forgotten)
        self._pool, self._methods, self._drafters = pool, methods, drafters
        self._guard = guard
        self._remembers = remembers

    def found(self, sequence: DecodeSequence, running: Sequence[DecodeSequence]) -> int:
        """Return how many of its prompt's tokens a sequence would find in other rows."""
        if self._reads_all(sequence):
            return 0
        scope = sequence.request.scope
        return self.prefixes.finds(sequence.tokens, _holdings(running), scope)

    def take(self, sequence: DecodeSequence, running: Sequence[DecodeSequence]) -> Lease:
        """Return a row for a sequence that will run with these. Raises RuntimeError where all
        are in use."""
        if self._reads_all(sequence):
            return self.prefixes.take_empty()
        scope = sequence.request.scope
        try:
            lease, source = self.prefixes.take(sequence.tokens, _holdings(running), scope)
        except (RuntimeError, MemoryError):
            log.warning("a prompt's kept prefix could not be used: it is read", exc_info=True)
            return self.prefixes.take_empty()
        drafter = self._methods[sequence.method].plan.drafter
        if source is not None:
            length = self._guard.begin(drafter, sequence, lease, source, lease.length)
            self._pool.cut(lease, length)
        if source is lease:
            self._forgotten(lease)
        return lease

    def give_back(self, sequence: DecodeSequence, *, degraded: bool) -> None:
        """Take an ended sequence's row back. degraded: the row may hold NaN."""
        lease = sequence.lease
        lease.degraded = degraded
        if not self._remembers or degraded:
            self._pool.release(lease)
        elif self._keeps(sequence):
            for drafter in self._drafters:
                self._guard.tell(drafter, sequence, partial(drafter.keep, sequence))
        self._guard.release(self._drafters, sequence)
        sequence.leave()

    def _keeps(self, sequence: DecodeSequence) -> bool:
        """Keep an ended sequence's row for prompts that begin like it, or free it; return whether
        it is kept."""
        scope, prompt = sequence.request.scope, sequence.prompt_tokens
        try:
            return self.prefixes.give_back(sequence.lease, sequence.tokens, scope, prompt)
        except (RuntimeError, MemoryError):
            log.warning("an answer's row could not be kept", exc_info=True)
            self._pool.release(sequence.lease)
            return False

    def _reads_all(self, sequence: DecodeSequence) -> bool:
        """Return whether its prompt must be read whole, as for its log probabilities."""
        return sequence.wants_prompt_logprobs or not self._remembers

    def _forgotten(self, lease: Lease) -> None:
        for drafter in self._drafters:
            self._guard.drop(drafter, lease)


def _holdings(running: Sequence[DecodeSequence]) -> list[Holding]:
    return [Holding(s.lease, s.tokens, s.request.scope) for s in running]
