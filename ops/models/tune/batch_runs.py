"""The runs of `tune-batch`: what steps emit, how long they take, and the schedule's own."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from rich.progress import Progress

from ops.harness.batch_steps import measure
from ops.harness.boundary import InputError
from ops.harness.decoding import Answer, EncodedPrompt, decode
from ops.harness.engines import Engines, engines_of, portfolios
from ops.harness.settings import Setup
from ops.models.tune.batch_planner import BatchCosts
from router.fit.speedup import BASELINE, VLLM_BASELINE
from schemas import MethodSpec, SamplingParams
from workers.batch_schedule import STOP, BatchSchedule, schedule_of
from workers.bundle import Bundle
from workers.methods import get_method

STEPS = 24
"""Steps of a batch that one figure is the mean of."""
ROOM = 512
"""Tokens that the first sequences of a batch may emit while the last prompts are read."""


@dataclass(frozen=True)
class BatchTask:
    """A method, and the prompts, sizes and settings that its schedule is fitted to."""

    setup: Setup
    bundle: Bundle
    method: MethodSpec
    prompts: Sequence[EncodedPrompt]
    batches: Sequence[int]
    gammas: Sequence[int]
    max_tokens: int
    temperature: float
    rounds: int
    seed: int

    @property
    def plain(self) -> MethodSpec:
        """Plain decoding by the method's own engine."""
        return get_method(VLLM_BASELINE if self.method.engine == "vllm" else BASELINE)

    @property
    def slots(self) -> int:
        """KV slots of the largest batch: the torch engine gives each sequence the whole context."""
        each = self.setup.engine.max_context
        if self.method.engine == "vllm":
            each = min(each, ROOM + max(len(item.token_ids) for item in self.prompts))
        return max(self.batches) * each

    def sampling(self, max_tokens: int, *, to_the_end: bool = False) -> SamplingParams:
        """Return the parameters of an answer. to_the_end: ignore end tokens."""
        return SamplingParams(
            temperature=self.temperature,
            max_tokens=max_tokens,
            ignore_eos=to_the_end,
        )

    def with_gamma(self, gamma: int) -> MethodSpec:
        """The method with as many draft tokens at every batch size. With none vLLM is measured as
        its plain method: it loads no drafter that never drafts."""
        if gamma == 0 and self.method.engine == "vllm":
            return self.plain
        schedule = BatchSchedule((1,), (gamma,))
        return scheduled(self.method, schedule, f"{self.method.name}_{gamma}")


@dataclass
class Measured:
    """What the runs of single gammas say.

    tokens, steps: emitted and taken after each answer's first token, by gamma; plain: seconds of
    plain steps by batch; costs as `BatchCosts.seconds`.
    """

    tokens: dict[int, int] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)
    seconds: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    plain: dict[int, list[float]] = field(default_factory=dict)

    @property
    def costs(self) -> BatchCosts:
        """For the planner."""
        return BatchCosts({g: self.tokens[g] / self.steps[g] for g in self.tokens}, self.seconds)


def scheduled(method: MethodSpec, schedule: BatchSchedule, name: str) -> MethodSpec:
    """The method with the stop `batch_schedule`, under a name."""
    stop = {"batches": schedule.batches, "gammas": schedule.gammas}
    settings = {**method.settings, "stop": stop}
    return method.model_copy(update={"name": name, "stop": STOP, "settings": settings})


def own_gamma(method: MethodSpec) -> int:
    """Draft tokens of the method as it is, alone on its engine; raises ValueError where its stop
    has no number."""
    return schedule_of(method).gamma(1)


async def measure_gammas(task: BatchTask, bar: Progress) -> Measured:
    """Measure every gamma at every batch size, next to plain decoding.

    Each round draws new prompts for a batch size, the same for every gamma. Methods that share an
    engine take turns; other vLLM methods have an engine per gamma, one after the other.
    """
    found = Measured()
    specs = {task.with_gamma(gamma).name: gamma for gamma in task.gammas}
    candidates = [task.with_gamma(gamma) for gamma in task.gammas]
    if task.plain.name not in specs:
        candidates.insert(0, task.plain)
    async for engines, names in _each_engine(task, candidates, bar):
        for name in names:
            if name in specs:
                await _count_tokens(task, engines, name, specs[name], found)
        await _time_steps(task, engines, names, specs, found, bar)
    if task.plain.name in specs:
        found.plain = {b: s for (b, gamma), s in found.seconds.items() if gamma == 0}
    return found


async def compare(
    task: BatchTask, methods: Mapping[str, MethodSpec], bar: Progress
) -> dict[str, dict[int, float]]:
    """Output tokens per second of all prompts, by label and batch size; prefill included. The
    median over the rounds, in which methods that share an engine take turns."""
    rates: dict[str, dict[int, float]] = {label: {} for label in methods}
    labels = {spec.name: label for label, spec in methods.items()}
    async for engines, names in _each_engine(task, list(methods.values()), bar):
        for name in names:
            await _answers(task, engines, name, task.prompts[:2], 2)
        progress = bar.add_task("whole answers", total=task.rounds * len(task.batches))
        for batch in task.batches:
            order = random.Random(f"{task.seed} {batch}")
            found: dict[str, list[float]] = {name: [] for name in names}
            for _ in range(task.rounds):
                for name in order.sample(names, len(names)):
                    found[name].append(await _throughput(task, engines, name, batch))
                bar.advance(progress)
            for name in names:
                rates[labels[name]][batch] = median(found[name])
        bar.remove_task(progress)
    return rates


async def _throughput(task: BatchTask, engines: Engines, name: str, batch: int) -> float:
    started = time.perf_counter()
    answers = await _answers(task, engines, name, task.prompts, batch)
    return sum(len(answer.token_ids) for answer in answers) / (time.perf_counter() - started)


async def _each_engine(
    task: BatchTask, specs: Sequence[MethodSpec], bar: Progress
) -> AsyncIterator[tuple[Engines, list[str]]]:
    """One engine after the other, with the methods it holds."""
    groups = portfolios(replace(task.setup, methods=tuple(specs)))
    progress = bar.add_task("engines", total=len(groups))
    for group in groups:
        names = [spec.name for spec in group]
        bar.update(progress, description=f"engine of {', '.join(names)}")
        setup = replace(task.setup, methods=tuple(group))
        with engines_of(setup, task.bundle, "tune-batch") as engines:
            yield engines, names
        bar.advance(progress)


async def _count_tokens(
    task: BatchTask, engines: Engines, name: str, gamma: int, found: Measured
) -> None:
    """Tokens and steps of real answers, which end where they end; the first token is the
    prefill's."""
    answers = await _answers(task, engines, name, task.prompts, max(task.batches))
    stats = [answer.stats for answer in answers]
    found.tokens[gamma] = sum(max(0, s.output_tokens - 1) for s in stats)
    found.steps[gamma] = sum(max(0, s.target_steps - 1) for s in stats)
    if not found.steps[gamma]:
        raise InputError("--max-tokens: all answers end at once; allow more tokens")


async def _answers(
    task: BatchTask, engines: Engines, name: str, prompts: Sequence[EncodedPrompt], places: int
) -> list[Answer]:
    """Return the answers to all prompts, with `places` requests in flight."""
    free = asyncio.Semaphore(places)
    sampling = task.sampling(task.max_tokens)

    async def one(item: EncodedPrompt) -> Answer:
        async with free:
            asked = f"{name}-{item.prompt.id}-{places}"
            return await decode(
                engines, asked, name, item.token_ids, sampling, scope=f"{name} {places}"
            )

    return await asyncio.gather(*map(one, prompts))


async def _time_steps(
    task: BatchTask,
    engines: Engines,
    names: Sequence[str],
    gammas: Mapping[str, int],
    found: Measured,
    bar: Progress,
) -> None:
    progress = bar.add_task("step times", total=task.rounds * len(task.batches))
    for turn in range(task.rounds):
        for batch in task.batches:
            order = random.Random(f"{task.seed} {turn} {batch}")
            prompts = [order.choice(task.prompts).token_ids for _ in range(batch)]
            room = min(ROOM, task.setup.engine.max_context - max(map(len, prompts)))
            sampling = task.sampling(room, to_the_end=True)
            for name in order.sample(names, len(names)):
                steps = await measure(engines, name, prompts, sampling, STEPS)
                if name in gammas:
                    cell = (batch, gammas[name])
                    found.seconds.setdefault(cell, []).append(steps.seconds)
                else:
                    found.plain.setdefault(batch, []).append(steps.seconds)
            bar.advance(progress)
    bar.remove_task(progress)
