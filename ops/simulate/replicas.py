"""Virtual replicas: queues, prompts and decode steps in simulated time, without tokens' content."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from math import floor
from typing import Any

from ops.simulate.speeds import Changing
from schemas import DecodeChunk, DecodeRequest, DecodeStats, EngineConfig, LoadReport

ENGINE = EngineConfig()
SMOOTHING = 0.1
"""Weight of the newest step in the moving averages of load reports, as in the engines."""


class Machine:
    """Simulated time in which the replicas work. It can stand still."""

    def __init__(self, speeds: Changing) -> None:
        self.speeds = speeds
        self.paused = 0.0
        """Seconds in which it stood still, those of the present pause included."""
        self._until = 0.0

    @property
    def time(self) -> float:
        """Return the seconds since the beginning."""
        return asyncio.get_running_loop().time()

    @property
    def worked(self) -> float:
        """Return the seconds since the beginning without those of pauses."""
        return self.time - self.paused + max(0.0, self._until - self.time)

    def pause(self, seconds: float) -> None:
        """Stand still from now on, or for longer if it does already."""
        self._until = max(self._until, self.time) + seconds
        self.paused += seconds

    async def work(self, seconds: float) -> None:
        """Wait until so many seconds of work are done."""
        end = self.worked + seconds
        while (left := end - self.worked) > 1e-9:
            await asyncio.sleep(left + max(0.0, self._until - self.time))


@dataclass(eq=False)
class Sequence:
    """One answer on a replica.

    length: tokens, those that another method has answered included. accepted: tokens per step.
    part: in which a last, broken step is left out. noise: factor on the seconds of its steps.
    pauses: seconds for which the machine stands still half way. fails, hangs: it stops half way.
    """

    request: DecodeRequest
    whole: bool
    length: int
    accepted: float
    part: float
    noise: float
    pauses: float
    fails: bool
    hangs: bool
    arrived: float
    admitted: float = 0.0
    first: float = 0.0
    emitted: int = 0
    done: int = 0
    stalled: float = 0.0
    batches: Counter[str] = field(default_factory=Counter)
    chunks: asyncio.Queue[DecodeChunk] = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        self.tokens = max(1, self.length - len(self.request.answered_token_ids))
        # Rounded by chance, so that the mean number of steps is right.
        steps = floor((self.tokens - 1) / self.accepted + self.part)
        self.steps = max(1, steps) if self.tokens > 1 else 0

    @property
    def broken(self) -> bool:
        """Return whether it has come to the step after which it fails or hangs."""
        return (self.fails or self.hangs) and self.done == self.steps // 2

    @property
    def context(self) -> int:
        """Return the tokens of its prompt and its answer so far."""
        return len(self.request.known_token_ids) + self.emitted

    def advance(self, now: float) -> bool:
        """Emit the tokens of the step that ends now; return whether the answer is over."""
        before = 0 if self.whole else self.emitted
        share = self.done / self.steps if self.steps else 1.0
        self.emitted = 1 + floor((self.tokens - 1) * share)
        if self.broken:
            if not self.hangs:
                self._say(0, finish_reason="error", error="the engine failed")
            return not self.hangs
        if self.done < self.steps:
            if not self.whole:
                self._say(self.emitted - before)
            return False
        stats = self._stats(now)
        self._say(self.emitted - before, finish_reason=stats.finish_reason, stats=stats)
        return True

    def _stats(self, now: float) -> DecodeStats:
        request = self.request
        total = self.tokens + len(request.answered_token_ids)
        batches = {name: count / max(1, self.steps) for name, count in self.batches.items()}
        return DecodeStats(
            request_id=request.request_id,
            method=request.method,
            temperature=request.sampling.temperature,
            prompt_tokens=len(request.known_token_ids),
            output_tokens=self.tokens,
            context_length=self.context,
            target_steps=1 + self.steps,
            queue_seconds=self.admitted - self.arrived,
            first_token_seconds=self.first - self.arrived,
            decode_seconds=now - self.first,
            stalled_seconds=self.stalled,
            total_seconds=now - self.arrived,
            mean_batch=sum(batches.values()) or 1.0,
            batch_by_method=batches,
            finish_reason="length" if total >= request.sampling.max_tokens else "stop",
        )

    def _say(self, tokens: int, **ending: Any) -> None:
        """Send a chunk. All its tokens but the last one of each step were drafted."""
        chunk = DecodeChunk(
            request_id=self.request.request_id,
            text="",
            token_ids=(0,) * tokens,
            drafted=(True,) * (tokens - 1) + (False,) * min(1, tokens),
            **ending,
        )
        self.chunks.put_nowait(chunk)


class Replica:
    """Reads one prompt after the other between steps that its running sequences share."""

    def __init__(self, name: str, methods: tuple[str, ...], machine: Machine) -> None:
        self.name, self.methods, self._machine = name, methods, machine
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._came = asyncio.Event()
        self._mean_batch = self._mean_context = 0.0
        self._step_seconds: dict[str, float] = {}

    @property
    def counts(self) -> Counter[str]:
        """Return its running sequences by method."""
        return Counter(one.request.method for one in self._running)

    async def answer(self, sequence: Sequence) -> AsyncGenerator[DecodeChunk, None]:
        """Yield an answer's chunks; closing it ends the work on it."""
        self._waiting.append(sequence)
        self._came.set()
        try:
            while True:
                chunk = await sequence.chunks.get()
                yield chunk
                if chunk.finish_reason is not None:
                    return
        finally:
            for line in (self._waiting, self._running):
                if sequence in line:
                    line.remove(sequence)

    async def run(self) -> None:
        """Work for ever."""
        while True:
            stepping = [one for one in self._running if not one.broken]
            if self._waiting and len(self._running) < ENGINE.max_batch:
                await self._read(self._waiting.popleft(), stepping)
            elif stepping:
                await self._step(stepping)
            else:
                self._came.clear()
                await self._came.wait()

    async def _read(self, sequence: Sequence, stalled: list[Sequence]) -> None:
        machine, request = self._machine, sequence.request
        sequence.admitted = machine.time
        self._running.append(sequence)
        speeds = machine.speeds.now
        await machine.work(speeds.prefill(request.method, len(request.known_token_ids)))
        sequence.first = machine.time
        for one in stalled:
            one.stalled += sequence.first - sequence.admitted
        self._advance(sequence)

    async def _step(self, stepping: list[Sequence]) -> None:
        machine, began, batch = self._machine, self._machine.time, len(stepping)
        counts = Counter(one.request.method for one in stepping)
        noise = sum(one.noise for one in stepping) / batch
        await machine.work(noise * machine.speeds.now.step(counts))
        took = machine.time - began
        self._mean_batch = _blend(self._mean_batch, batch)
        context = sum(one.context for one in stepping) / batch
        self._mean_context = _blend(self._mean_context, context)
        for name in counts:
            self._step_seconds[name] = _blend(self._step_seconds.get(name, 0.0), took)
        for one in stepping:
            one.done += 1
            one.batches.update(counts)
            self._advance(one)

    def _advance(self, sequence: Sequence) -> None:
        if sequence not in self._running:  # its client has left
            return
        if sequence.pauses and sequence.done == sequence.steps // 2:
            self._machine.pause(sequence.pauses)
        if sequence.advance(self._machine.time):
            self._running.remove(sequence)

    def report(self) -> LoadReport:
        """Return its load now."""
        everyone = [*self._running, *self._waiting]
        left = {one.request.request_id: one.request.outstanding(one.emitted) for one in everyone}
        return LoadReport(
            replica=self.name,
            methods=self.methods,
            running=len(self._running),
            waiting=len(self._waiting),
            running_by_method=dict(self.counts),
            outstanding_tokens=sum(left.values()),
            requests=left,
            mean_batch=self._mean_batch,
            mean_context=self._mean_context,
            recent_step_seconds=dict(self._step_seconds),
            free_slots=(ENGINE.max_batch - len(self._running)) * ENGINE.max_context,
            slots_each=ENGINE.max_context,
            time=self._machine.time,
        )


def _blend(old: float, new: float) -> float:
    return (1.0 - SMOOTHING) * old + SMOOTHING * new if old else new
