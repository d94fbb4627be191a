"""An engine without its thread: the test itself says when the next round happens."""

import asyncio
import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from decoding import SMALL, Answer, reading, request, without_reading

from schemas import EngineConfig, MethodSpec
from workers.bundle import Bundle
from workers.methods import get_method
from workers.torch_engine.engine import TorchEngine
from workers.torch_engine.scheduler import Scheduler
from workers.torch_engine.sequence import DecodeSequence


def words(count: int, seed: int = 0) -> list[int]:
    """Return a prompt of so many random bytes."""
    rng = random.Random(seed)
    return [rng.randrange(256) for _ in range(count)]


def has_seen(engine: TorchEngine, **held: int) -> None:
    """Let so many levels of each learned drafter's drafts for earlier requests hold; by method."""
    adaptive: Any = engine._methods["adaptive"].plan.drafter
    for name, one in adaptive.learned.items():
        for traffic in product((False, True), (False, True)):
            for _ in range(40):
                one.acceptance.saw(traffic, held[name], one.acceptance.levels)


class _Idle(TorchEngine):
    """Its stepper thread has nothing to do."""

    def _step(self, scheduler: Scheduler) -> None: ...


class Rig:
    """Real models, scheduler and streams; `round` is what the stepper thread would do next."""

    def __init__(
        self, bundle: Bundle, methods: Sequence[str | MethodSpec], **settings: Any
    ) -> None:
        own, read = without_reading(settings)
        config = EngineConfig.model_validate(SMALL | own)
        specs = [get_method(m) if isinstance(m, str) else m for m in methods]
        with reading(**read):
            self.engine = _Idle(specs, bundle, config, "rig")
        self.scheduler = self.engine._scheduler
        self.pool = self.engine._target.pool
        self._loop = asyncio.Runner()

    def submit(self, method: str, prompt: Sequence[int], **sampling: Any) -> DecodeSequence:
        """A request in the line, as `generate` makes it."""

        async def make() -> DecodeSequence:
            return self.engine._sequence(request(method, prompt, **sampling))

        sequence = self._loop.run(make())
        self.scheduler.submit(sequence)
        return sequence

    def round(self) -> None:
        """One round of the scheduler."""
        with torch.inference_mode():
            self.scheduler.round()

    def answer(self, sequence: DecodeSequence) -> Answer:
        """Everything the sequence's consumer has been sent since the last call."""

        async def take() -> Answer:
            answer = Answer()
            answer.add(await sequence.stream.next())
            return answer

        return self._loop.run(take())

    def finish(self, *sequences: DecodeSequence) -> list[Answer]:
        """Rounds until nobody is left, then the answers."""
        for _ in range(2000):
            self.round()
            if not any(self.scheduler.underway()):
                break
        return [self.answer(sequence) for sequence in sequences]

    def close(self) -> None:
        """Drop the event loop that the streams belong to."""
        self._loop.close()
