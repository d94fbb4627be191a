"""The seconds of steps that a whole batch shares, prompts already read."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from ops.harness.decoding import answer_to
from ops.harness.engines import Engines
from schemas import DecodeChunk, DecodeRequest, SamplingParams
from workers.engine import Engine


class BatchSteps:
    """Counts the steps between the moment when all of a batch decode and its end.

    Prompts are read one after the other while those read first decode already: steps between
    would hold a share of the reading, and be of a smaller batch.
    """

    def __init__(self, batch: int, wanted: int) -> None:
        self._wanted = wanted
        self._begun = [False] * batch
        self._steps = [0] * batch
        self._tokens = 0
        self._started = self._last = 0.0
        self.over = asyncio.Event()

    def add(self, index: int, chunk: DecodeChunk) -> None:
        """Count a chunk of sequence `index`; every step emits one token that was not drafted."""
        if self.over.is_set():
            return
        now = time.perf_counter()
        if not all(self._begun):
            self._begun[index] = True
            self._started = self._last = now
            return
        self._steps[index] += chunk.drafted.count(False)
        self._tokens += len(chunk.token_ids)
        self._last = now
        if min(self._steps) >= self._wanted or chunk.finish_reason is not None:
            self.over.set()

    @property
    def count(self) -> int:
        """Steps of all sequences together."""
        return sum(self._steps)

    @property
    def seconds(self) -> float:
        """Mean seconds of a step; raises ValueError where the batch never decoded together."""
        if not self.count:
            raise ValueError("the sequences ended before all of them decoded together")
        return (self._last - self._started) * len(self._steps) / self.count

    @property
    def tokens(self) -> float:
        """Mean tokens that a sequence gets of a step; raises ValueError as `seconds`."""
        if not self.count:
            raise ValueError("the sequences ended before all of them decoded together")
        return self._tokens / self.count


async def measure(
    engine: Engine | Engines,
    method: str,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingParams,
    wanted: int,
    scope: str = "",
) -> BatchSteps:
    """Time `wanted` steps of `prompts` (token ids) decoded together, then cancel the answers.

    scope: drafters look up past answers of the same scope only.
    """
    steps = BatchSteps(len(prompts), wanted)
    answers = [
        asyncio.ensure_future(
            answer_to(
                engine,
                DecodeRequest(
                    request_id=f"step-{method}-{len(prompts)}-{len(ids)}-{i}",
                    method=method,
                    prompt_token_ids=tuple(ids),
                    sampling=sampling,
                    scope=scope,
                ),
                partial(steps.add, i),
            )
        )
        for i, ids in enumerate(prompts)
    ]
    ended: asyncio.Future[Any] = asyncio.gather(*answers)
    over: asyncio.Future[Any] = asyncio.ensure_future(steps.over.wait())
    try:
        await asyncio.wait({ended, over}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            await ended
    finally:
        for task in (*answers, over):
            task.cancel()
        await asyncio.gather(*answers, over, ended, return_exceptions=True)
    return steps
