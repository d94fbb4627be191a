"""An engine without a model, for tests of a service that do not look at its words.

Answers are pieces of TEXT. Each step and each prompt token take a fixed time.
"""

import asyncio
import os
import time
from collections import Counter, deque
from contextlib import aclosing
from math import ceil, floor

from schemas import DecodeStats
from workers.engine import EngineBusyError, EngineRefusedError
from workers.engine_load import EngineLoad, load_report
from workers.stream import Stream

TOKENS_PER_STEP = {"naive": 1.0, "draft_verify": 2.5, "ngram": 1.2, "fuzzy": 3.0, "vllm_naive": 1.0}
"""What a step emits on the mean; 2 with other methods."""
STEP_SECONDS = "FAKE_STEP_SECONDS"
"""Environment variable: the seconds of one sequence's step. Each further one adds a tenth."""
PROMPT_TOKEN_SECONDS = 1e-4
TEXT = "Pack my box with five dozen liquor jugs, and let the quick brown fox jump over the dogs. "


class Answer:
    """One request and its progress; its figures have the names of DecodeStats."""

    def __init__(self, request, backend):
        self.request, self._backend, self.stream = request, backend, Stream(request.request_id)
        words, begin = backend.encode(TEXT).ids, sum(request.prompt_token_ids)
        ahead = range(len(request.answered_token_ids), request.sampling.max_tokens)
        self.ahead = deque(words[(begin + i) % len(words)] for i in ahead)
        self.asked, self.seconds = time.monotonic(), Counter()
        self.output_tokens, self._counts, self._batches = 0, Counter(target_steps=0), Counter()

    @property
    def outstanding(self):
        return self.request.outstanding(self.request.sampling.max_tokens - len(self.ahead))

    def emit(self, seconds, batch):
        """Emit a step's tokens. batch: its sequences by method; empty for the prompt's step."""
        rate, step = TOKENS_PER_STEP.get(self.request.method, 2.0), self._counts["target_steps"]
        accepted = floor(step * rate) - floor((step - 1) * rate) - 1 if batch else 0
        tokens = [self.ahead.popleft() for _ in range(min(1 + accepted, len(self.ahead)))]
        drafted = [position < accepted for position in range(len(tokens))]
        self._counts.update(target_steps=1, accepted_tokens=sum(drafted))
        self._counts["drafted_tokens"] += 4 if batch and rate > 1.0 else 0
        self.output_tokens += len(tokens)
        self._batches.update(batch)
        self.seconds["decode_seconds" if batch else "first_token_seconds"] += seconds
        self.stream.push(self._backend.decode(tokens), tokens, drafted)

    def finish(self, reason):
        steps = max(1, self._counts["target_steps"] - 1)
        stats = DecodeStats(
            request_id=self.request.request_id,
            method=self.request.method,
            temperature=self.request.sampling.temperature,
            prompt_tokens=len(self.request.prompt_token_ids),
            output_tokens=self.output_tokens,
            context_length=len(self.request.known_token_ids) + self.output_tokens,
            mean_batch=self._batches.total() / steps or 1.0,
            batch_by_method={name: count / steps for name, count in self._batches.items()},
            total_seconds=self.seconds["first_token_seconds"] + self.seconds["decode_seconds"],
            finish_reason=reason,
            **self._counts,
            **self.seconds,
        )
        self.stream.finish(reason, stats)


class FakeEngine:
    """See workers.engine.Engine. Requests come from one event loop, on which it also waits."""

    def __init__(self, methods, bundle, config, replica):
        self.methods, self._config, self._replica = tuple(methods), config, replica
        self._names = [spec.name for spec in methods]
        self._backend, self._figures = bundle.backend_tokenizer(), EngineLoad()
        self._figures.slots = config.kv_slots
        self._rows = min(config.max_batch, max(1, config.kv_slots // config.max_context))
        self._most, self._seconds = self._rows + config.max_waiting, float(os.environ[STEP_SECONDS])
        self._waiting, self._batch, self._open, self._stepper = deque(), [], True, None

    async def generate(self, request):
        if request.method not in self._names:
            raise EngineRefusedError(f"method: {request.method!r} is not served here")
        if len(request.prompt_token_ids) + request.sampling.max_tokens > self._config.max_context:
            raise EngineRefusedError("max_tokens: more than the context has")
        if not self._open or len(self._waiting) + len(self._batch) >= self._most:
            raise EngineBusyError("the engine is closed, or its line is full")
        self._waiting.append(answer := Answer(request, self._backend))
        self._figures.begin(answer)
        if self._stepper is None or self._stepper.done():
            self._stepper = asyncio.create_task(self._run())
        async with aclosing(answer.stream.chunks()) as chunks:
            async for chunk in chunks:
                yield chunk

    def load(self):
        return load_report(self._replica, self._names, self._figures, healthy=self._open)

    def close(self):
        self._open = False
        self._retire("cancelled")

    async def _run(self):
        while self._waiting or self._batch:
            while self._waiting and len(self._batch) < self._rows:
                await self._read(self._waiting.popleft())
                self._retire()
            if batch := Counter(answer.request.method for answer in self._batch):
                seconds = await _computed(self._seconds * (0.9 + 0.1 * batch.total()))
                for answer in self._batch:
                    answer.emit(seconds, batch)
                    self._figures.stepped(answer.request.method, seconds)
                used = sum(len(a.request.known_token_ids) + a.output_tokens for a in self._batch)
                share = used / self._config.kv_slots
                self._figures.iterated(len(self._batch), len(self._waiting), share)
            self._retire()

    async def _read(self, answer):
        """Read a prompt, while the others wait."""
        waited = time.monotonic() - answer.asked
        answer.seconds.update(queue_seconds=waited, first_token_seconds=waited)
        others, self._batch = self._batch, [*self._batch, answer]
        seconds = await _computed(len(answer.request.known_token_ids) * PROMPT_TOKEN_SECONDS)
        for other in others:
            other.seconds.update(stalled_seconds=seconds, decode_seconds=seconds)
        if self._open:
            answer.emit(seconds, {})
            self._figures.begun(answer)

    def _retire(self, reason=None):
        """End the answers that are finished or whose clients have left; for a reason, all."""
        for answer in [*self._batch, *self._waiting]:
            ended = "cancelled" if answer.stream.cancelled else reason
            if ended or not answer.ahead:
                (self._batch if answer in self._batch else self._waiting).remove(answer)
                self._figures.end(answer)
                answer.finish(ended or "length")


async def _computed(seconds):
    """Wait in slices of 10 ms. Return what it took: a stopped process catches up on one only."""
    began, slices = time.monotonic(), ceil(seconds / 0.01)
    for _ in range(slices):
        await asyncio.sleep(seconds / slices)
    return time.monotonic() - began
