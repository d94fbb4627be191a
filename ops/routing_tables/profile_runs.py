"""The measuring behind `specadapt profile`: answers one by one, then the step-time grid."""

import asyncio
import hashlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from rich.progress import Progress

from ops.common.decoding import (
    EncodedPrompt,
    Engines,
    answer_to,
    encode,
    engines_of,
    request_of,
)
from ops.common.prompts import Prompt
from ops.common.settings import Setup
from ops.routing_tables.profile_store import ProfileStore, meta_of
from router.fit.profile import Profile, ProfileRow, StepRow
from schemas import DecodeChunk, SamplingParams
from workers.bundle import load_bundle

STEP_BATCHES = (1, 2, 4, 8, 16)
STEP_CONTEXTS = (128, 512, 1024)
STEP_TOKENS = 64
STEP_COUNT = 24
STEP_TEXTS = 8
"""Texts that steps of smaller batches go on from, one batch after another."""
STEP_ROOM = 768

BLOCK_ROUNDS = 4
"""Rounds of prompts per method before the next method, with requests in flight."""


@dataclass(frozen=True)
class ProfilePlan:
    """What is profiled, and under which settings."""

    setup: Setup
    prompts: Sequence[Prompt]
    max_tokens: int
    temperature: float
    concurrency: int
    seed: int

    @property
    def block(self) -> int:
        """Prompts that one method answers before the next one does."""
        return 1 if self.concurrency == 1 else BLOCK_ROUNDS * self.concurrency


async def run_profile(plan: ProfilePlan, out: Path, bar: Progress) -> Profile:
    """Measure what the folder does not hold yet; returns all that it holds then.

    Raises InputError where the folder's profile was taken under other settings.
    """
    bundle = load_bundle(plan.setup.bundle)
    engine_config = plan.setup.engine
    encoded, _ = encode(bundle, plan.prompts, engine_config.max_context - plan.max_tokens)
    more = {"concurrency": plan.concurrency, "seed": plan.seed}
    store = ProfileStore(out, meta_of(plan.setup, bundle, plan.max_tokens, **more))
    with engines_of(plan.setup, bundle, "profile") as engines:
        await warm_up(plan, engines, encoded[0])
        done = store.answered(plan.temperature)
        todo = [item for item in encoded if item.prompt.id not in done]
        task = bar.add_task("prompts", total=len(todo))
        for start in range(0, len(todo), plan.block):
            items = todo[start : start + plan.block]
            rows = await all_methods(plan, engines, items)
            for item in items:
                store.add_answers(item, rows[item.prompt.id])
                bar.advance(task)
        await grid_steps(plan, engines, encoded, store, bar)
    return Profile.load(out)


async def warm_up(plan: ProfilePlan, engines: Engines, item: EncodedPrompt) -> None:
    """Decode a short response with each method: first calls allocate."""
    for name in plan.setup.names:
        await answer_to(engines, request_of("warm-up", name, item.token_ids, _sampling(plan, 8)))


async def grid_steps(
    plan: ProfilePlan,
    engines: Engines,
    encoded: Sequence[EncodedPrompt],
    store: ProfileStore,
    bar: Progress,
) -> None:
    """Measure the cells of the step-time grid that the engine's limits admit and the store lacks.

    All methods of a batch size and context are measured one after the other, within a minute.
    """
    limits = plan.setup.engine
    grid = [
        (batch, context, method)
        for batch, context, method in product(STEP_BATCHES, STEP_CONTEXTS, plan.setup.names)
        if batch <= limits.max_batch
        and context + STEP_TOKENS <= limits.max_context
        and batch * min(context + STEP_ROOM, limits.max_context) <= limits.kv_slots
    ]
    task = bar.add_task("step times", total=len(grid))
    for batch, context, method in grid:
        if not store.has_step(method, batch, context):
            store.add_step(await step_time(plan, engines, encoded, method, batch, context))
        bar.advance(task)


async def all_methods(
    plan: ProfilePlan, engines: Engines, items: Sequence[EncodedPrompt]
) -> dict[str, list[ProfileRow]]:
    """These prompts' rows by prompt id, under every method in an order of the prompts' own."""
    order = random.Random(" ".join([str(plan.seed), *(item.prompt.id for item in items)]))
    rows: dict[str, list[ProfileRow]] = {item.prompt.id: [] for item in items}
    for name in order.sample(plan.setup.names, len(plan.setup.names)):
        await engines.others_asleep(name)
        places = asyncio.Semaphore(plan.concurrency)

        async def one(item: EncodedPrompt, name: str, places: asyncio.Semaphore) -> None:
            async with places:
                rows[item.prompt.id].append(await _answer(plan, engines, item, name))

        await asyncio.gather(*(one(item, name, places) for item in items))
    return rows


async def _answer(
    plan: ProfilePlan, engines: Engines, item: EncodedPrompt, name: str
) -> ProfileRow:
    sampling = _sampling(plan, plan.max_tokens)
    scope = f"{name} {plan.temperature:g}"
    request = request_of(item.prompt.id, name, item.token_ids, sampling, scope)
    answer = await answer_to(engines, request)
    stats = answer.stats
    return ProfileRow(
        prompt_id=item.prompt.id,
        method=name,
        temperature=plan.temperature,
        prompt_tokens=stats.prompt_tokens,
        output_tokens=stats.output_tokens,
        target_steps=stats.target_steps,
        seconds=answer.seconds,
        prefill_seconds=stats.first_token_seconds,
        decode_seconds=stats.decode_seconds,
        mean_batch=max(1.0, stats.mean_batch),
        looping=stats.looping,
        answer=hashlib.sha256(repr(answer.token_ids).encode()).hexdigest()[:12],
    )


async def step_time(
    plan: ProfilePlan,
    engines: Engines,
    encoded: Sequence[EncodedPrompt],
    method: str,
    batch: int,
    context: int,
) -> StepRow:
    """Return the seconds per step of `batch` sequences at about `context` tokens each.

    Every method and batch size continues the same texts: the tokens that a step emits depend more
    on the text than on the batch.
    """
    longest = plan.setup.engine.max_context
    length = max(8, context - STEP_TOKENS // 2)
    # Ample: the first sequences go on while the last prompts are read.
    room = min(STEP_ROOM, longest - length)
    sampling = SamplingParams(temperature=plan.temperature, max_tokens=room, ignore_eos=True)
    texts = _texts(encoded, length, random.Random(f"{plan.seed} {context}"), max(batch, STEP_TEXTS))
    await engines.others_asleep(method)
    rounds = [
        await measure(
            engines,
            method,
            texts[start : start + batch],
            sampling,
            scope=f"steps {method} {batch} {context} {start}",
        )
        for start in range(0, len(texts) - batch + 1, batch)
    ]
    count = sum(measured.count for measured in rounds)
    return StepRow(
        method=method,
        batch=batch,
        context=context,
        seconds=sum(measured.seconds * measured.count for measured in rounds) / count,
        count=count,
        tokens=sum(measured.tokens * measured.count for measured in rounds) / count,
    )


def _texts(
    encoded: Sequence[EncodedPrompt], length: int, order: random.Random, count: int
) -> list[tuple[int, ...]]:
    """Return `count` texts of exactly `length` tokens: prompts laid end to end.

    The last prompt is whole if it fits, so that what follows is its response. The first texts are
    the same for every count.
    """
    result, last = [], list[EncodedPrompt]()
    for _ in range(count):
        last = last or order.sample(encoded, len(encoded))
        ids = [*last.pop().token_ids]
        while len(ids) < length:
            ids = [*order.choice(encoded).token_ids, *ids]
        result.append(tuple(ids[-length:]))
    return result


def _sampling(plan: ProfilePlan, max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=plan.temperature, max_tokens=max_tokens)


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
        """Mean tokens that a sequence gets of a step."""
        return self._tokens / self.count


async def measure(
    engine: Engines,
    method: str,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingParams,
    scope: str,
) -> BatchSteps:
    """Time STEP_COUNT steps of prompts (token ids) decoded together, then cancel the responses."""
    steps = BatchSteps(len(prompts), STEP_COUNT)
    answers = [
        asyncio.ensure_future(
            answer_to(
                engine, request_of(f"step-{i}", method, ids, sampling, scope), partial(steps.add, i)
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
