"""Virtual replicas and their machine: prompts and decode steps in simulated time."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from ops.simulate.speeds import Speeds
from schemas import DecodeChunk, DecodeRequest, DecodeStats, EngineConfig, LoadReport
from workers.engine_load import blend

ENGINE = EngineConfig()


class Machine:
    """The machine of all replicas. It can stand still while simulated time passes."""

    def __init__(self, speeds: Speeds) -> None:
        self.speeds = speeds
        self._paused = self._until = 0.0

    def time(self) -> float:
        """Return the seconds since the beginning."""
        return asyncio.get_running_loop().time()

    @property
    def worked(self) -> float:
        """Return the seconds since the beginning without those of pauses."""
        return self.time() - self._paused + max(0.0, self._until - self.time())

    def pause(self, seconds: float) -> None:
        """Stand still from now on, or for longer if it does already."""
        self._until = max(self._until, self.time()) + seconds
        self._paused += seconds

    async def work(self, seconds: float) -> None:
        """Wait until `seconds` of work are done."""
        end = self.worked + seconds
        while (left := end - self.worked) > 1e-9:
            await asyncio.sleep(left + max(0.0, self._until - self.time()))


@dataclass(eq=False)
class Sequence:
    """One response on a replica.

    tokens: its output; the first one comes from reading the prompt, the others from `steps`. noise:
    factor on the seconds of its steps. pauses: seconds for which the machine stands still half way.
    fails, hangs: it stops half way. arrived, admitted, first: times of these events. stalled:
    seconds for which it waited for other prompts. batches: sequences by method, summed over steps.
    """

    request: DecodeRequest
    tokens: int
    steps: int
    noise: float
    pauses: float
    fails: bool
    hangs: bool
    emitted: int = 0
    arrived: float = 0.0
    admitted: float = 0.0
    first: float = 0.0
    stalled: float = 0.0
    batches: Counter[str] = field(default_factory=Counter)

    def chunk(self, tokens: int, **ending: Any) -> DecodeChunk:
        """Return a chunk. All its tokens but the last one of each step were drafted."""
        drafted = (True,) * (tokens - 1) + (False,) * min(1, tokens)
        about: dict[str, Any] = {"request_id": self.request.request_id, "text": "", **ending}
        # Not validated, as reports: a run makes hundreds of thousands.
        return DecodeChunk.model_construct(token_ids=(0,) * tokens, drafted=drafted, **about)

    def stats(self, now: float) -> DecodeStats:
        """Return the statistics of a response that ends now."""
        request, prompt = self.request, len(self.request.known_token_ids)
        whole = self.tokens + len(request.answered_token_ids) >= request.sampling.max_tokens
        batches = {name: count / self.steps for name, count in self.batches.items()}
        return DecodeStats(
            request_id=request.request_id,
            method=request.method,
            temperature=request.sampling.temperature,
            prompt_tokens=prompt,
            output_tokens=self.tokens,
            context_length=prompt + self.tokens,
            target_steps=1 + self.steps,
            queue_seconds=self.admitted - self.arrived,
            first_token_seconds=self.first - self.arrived,
            decode_seconds=now - self.first,
            stalled_seconds=self.stalled,
            total_seconds=now - self.arrived,
            mean_batch=sum(batches.values()) or 1.0,
            batch_by_method=batches,
            finish_reason="length" if whole else "stop",
        )


class Replica:
    """Reads one prompt after the other. Running sequences begin no step meanwhile."""

    def __init__(self, name: str, methods: tuple[str, ...], machine: Machine) -> None:
        self.name, self.methods, self._machine = name, methods, machine
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._slots, self._reading = asyncio.Semaphore(ENGINE.max_batch), asyncio.Lock()
        self._mean_batch = 0.0
        self._step_seconds: dict[str, float] = {}
        counts = dict.fromkeys(("running", "waiting", "outstanding_tokens", "free_slots"), 0)
        self._resting = LoadReport(
            replica=name, methods=methods, slots_each=ENGINE.max_context, time=0.0, **counts
        )

    @property
    def running(self) -> Counter[str]:
        """Return the number of its running sequences by method."""
        return Counter(one.request.method for one in self._running)

    async def answer(self, sequence: Sequence, whole: bool) -> AsyncGenerator[DecodeChunk, None]:
        """Yield a response's chunks; closing it ends the work on it.

        whole: the response is one chunk.
        """
        machine, sent = self._machine, 0
        sequence.arrived = machine.time()
        self._waiting.append(sequence)
        try:
            async with self._slots:
                for done in range(sequence.steps + 1):  # step 0 reads the prompt
                    await (self._step(sequence) if done else self._read(sequence))
                    sequence.emitted = 1 + (sequence.tokens - 1) * done // max(1, sequence.steps)
                    if done == sequence.steps // 2:
                        machine.pause(sequence.pauses)
                        if sequence.hangs:
                            await asyncio.Event().wait()
                        if sequence.fails:
                            yield sequence.chunk(0, finish_reason="error", error="engine failure")
                            return
                    if done < sequence.steps and not whole:
                        yield sequence.chunk(sequence.emitted - sent)
                        sent = sequence.emitted
                stats = sequence.stats(machine.time())
                ending = {"finish_reason": stats.finish_reason, "stats": stats}
                yield sequence.chunk(sequence.emitted - sent, **ending)
        finally:
            for line in (self._waiting, self._running):
                if sequence in line:
                    line.remove(sequence)

    async def _read(self, sequence: Sequence) -> None:
        machine, request = self._machine, sequence.request
        seconds = machine.speeds.prefill(request.method, len(request.known_token_ids))
        async with self._reading:
            self._waiting.remove(sequence)
            self._running.append(sequence)
            sequence.admitted = machine.time()
            await machine.work(seconds)
        sequence.first = machine.time()

    async def _step(self, sequence: Sequence) -> None:
        machine, asked = self._machine, self._machine.time()
        async with self._reading:
            began, counts, method = machine.time(), self.running, sequence.request.method
        await machine.work(sequence.noise * machine.speeds.step(counts))
        sequence.stalled += began - asked
        sequence.batches.update(counts)
        self._mean_batch = blend(self._mean_batch, counts.total())
        seconds = machine.time() - began
        self._step_seconds[method] = blend(self._step_seconds.get(method), seconds)

    def report(self) -> LoadReport:
        """Return its load now."""
        everyone = [*self._running, *self._waiting]
        left = {one.request.request_id: one.request.outstanding(one.emitted) for one in everyone}
        now = {
            "running": len(self._running),
            "waiting": len(self._waiting),
            "running_by_method": dict(self.running),
            "outstanding_tokens": sum(left.values()),
            "requests": left,
            "mean_batch": self._mean_batch,
            "recent_step_seconds": dict(self._step_seconds),
            "free_slots": (ENGINE.max_batch - len(self._running)) * ENGINE.max_context,
            "time": self._machine.time(),
        }
        return self._resting.model_copy(update=now)
