"""Methods that take turns step by step, each with its own batch.

On a machine whose speed changes from second to second, every change then affects all methods alike.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from ops.bench.stats import Run, run_of
from ops.common.boundary import InputError
from ops.common.decoding import DecodeFailedError, EncodedPrompt, request_of
from ops.common.settings import Setup
from schemas import DecodeRequest, SamplingParams
from workers.bundle import Bundle
from workers.drafting.lookup.past import PastAnswers
from workers.end_tokens import end_tokens
from workers.stream import Stream
from workers.torch_engine.engine import PREFILL_CHUNK, Models, load_models
from workers.torch_engine.scheduler import Limits, Scheduler
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.target import Target

WARM_UP_TOKENS = 8
DECIDING = ("adaptive", "suffix")
"""Drafters that learn from step times and past responses. They learn from methods of these drafters
only, as if the methods were served alone."""


@dataclass(frozen=True)
class Asked:
    """The parameters that every request of a repeat shares."""

    sampling: SamplingParams
    repeat: int

    def of(self, item: EncodedPrompt, method: str) -> DecodeRequest:
        """A prompt's request."""
        return request_of(
            *(f"{item.prompt.id}-{self.repeat}", method, item.token_ids, self.sampling),
            scope=f"{method} {self.repeat} {self.sampling.max_tokens}",
        )


async def in_lockstep(
    setup: Setup,
    bundle: Bundle,
    encoded: Sequence[EncodedPrompt],
    asked: Asked,
    batch: int,
    advance: Callable[[], None],
) -> dict[str, tuple[list[Run], float]]:
    """Answer the prompts with every method, `batch` at a time, taking turns step by step.

    Each turn goes to the method whose steps took least time so far. Returns by method its runs and
    the seconds of its own steps.

    Raises InputError for methods of other engines, DecodeFailedError if a step fails.
    """
    other = [spec.name for spec in setup.methods if spec.engine != "torch"]
    if other:
        raise InputError(f"--lockstep: {other[0]} is not a method of the torch engine")
    room = max(len(item.token_ids) for item in encoded) + asked.sampling.max_tokens
    rows = batch * len(setup.methods)
    bounds = {"max_context": room, "max_batch": rows, "kv_slots": rows * room}
    engine = setup.engine.model_copy(update={**bounds, "prefix_cache": False})
    torch.set_num_threads(engine.threads)
    models = load_models(setup.methods, bundle, engine)
    lanes = [_Lane(name, models, bundle, batch) for name in setup.names]
    short = asked.sampling.model_copy(update={"max_tokens": WARM_UP_TOKENS})
    for lane in lanes:
        lane.ask(encoded[:1], replace(asked, sampling=short))
        while lane.busy:
            lane.round()
            await asyncio.sleep(0)
        lane.seconds = 0.0
    for lane in lanes:
        lane.ask(encoded, asked)
    runs = {lane.method: list[Run]() for lane in lanes}
    while waiting := [lane for lane in lanes if lane.busy]:
        lane = min(waiting, key=lambda lane: lane.seconds)
        done = lane.round()
        runs[lane.method] += done
        for _ in done:
            advance()
        await asyncio.sleep(0)  # streams report on this loop
    return {lane.method: (runs[lane.method], lane.seconds) for lane in lanes}


class _Lane:
    """One method's batch over the models that all share. Its clock, `seconds`, stands still while
    others decode."""

    def __init__(self, method: str, models: Models, bundle: Bundle, batch: int) -> None:
        self.method, self.seconds = method, 0.0
        self._tokenizer = bundle.backend_tokenizer()
        self._eos = end_tokens(bundle)
        self._batch = batch
        target = Target(models.target.model, models.target.model.make_pool(batch, models.capacity))
        past = PastAnswers()
        if models.methods[method].spec.drafter in DECIDING:
            target.costs, past = models.target.costs, models.context.past
        limits = Limits(
            rows=batch,
            capacity=models.capacity,
            max_waiting=batch,
            chunk=PREFILL_CHUNK,
            joint=models.joint,
            prefix_cache=False,
        )
        self._scheduler = Scheduler(
            *(target, models.methods, models.context.drafters, models.context.guard, limits, past)
        )
        self._waiting = deque[tuple[EncodedPrompt, DecodeRequest]]()
        self._running = list[_Request]()
        self._repeat = 0

    @property
    def busy(self) -> bool:
        """Whether anything is left to decode."""
        return bool(self._waiting or self._running)

    def ask(self, items: Sequence[EncodedPrompt], asked: Asked) -> None:
        """Queue requests; the batch bounds how many run at a time."""
        self._waiting.extend((item, asked.of(item, self.method)) for item in items)
        self._repeat = asked.repeat

    def round(self) -> list[Run]:
        """Decode a step; the responses that it ended."""
        clock = time.perf_counter()
        while self._waiting and len(self._running) < self._batch:
            item, request = self._waiting.popleft()
            stream = Stream(request.request_id)
            sequence = DecodeSequence(request, stream, tokenizer=self._tokenizer, eos=self._eos)
            self._running.append(_Request(item, sequence, self.seconds))
            self._scheduler.submit(sequence)
        with torch.inference_mode():
            self._scheduler.round()
        self.seconds += time.perf_counter() - clock
        for one in self._running:
            one.look(self.seconds)
        done = [one for one in self._running if one.sequence.finished is not None]
        self._running = [one for one in self._running if one.sequence.finished is None]
        return [one.run(self._repeat, self.seconds) for one in done]


@dataclass(eq=False)
class _Request:
    """A prompt on its way. began, first: when it was asked and had its first token, on the clock of
    its method."""

    item: EncodedPrompt
    sequence: DecodeSequence
    began: float
    first: float | None = None
    admitted: bool = False

    def look(self, now: float) -> None:
        """Note the first token; raises DecodeFailedError where a step has ended it."""
        if self.first is None and self.sequence.output_tokens:
            self.first = now - self.began
        self.admitted |= self.sequence.admitted
        if self.admitted and not self.sequence.admitted and self.sequence.finished is None:
            name = self.sequence.request.request_id
            raise DecodeFailedError(f"{name}: a step failed, as the log says")

    def run(self, repeat: int, now: float) -> Run:
        """Its figures, at its end."""
        assert self.sequence.finished is not None
        stats = self.sequence.stats(self.sequence.finished)
        token_ids = self.sequence.tokens[self.sequence.prompt_tokens :]
        labels = self.item.prompt.id, self.item.prompt.domain, repeat
        return run_of(labels, token_ids, (now - self.began, self.first), stats)
