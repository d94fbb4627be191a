"""The runs of `bench decode`: every method and peer on the same prompts, one clock."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

from rich.progress import Progress

from ops.bench.decode.lockstep import Asked, in_lockstep
from ops.bench.decode.peers import (
    CPP_MODES,
    HF_MODES,
    PLAIN,
    STATIC_MODE,
    HuggingFace,
    LlamaCpp,
    PeerProcess,
    gguf_file,
)
from ops.bench.decode.quality import quality_of
from ops.bench.stats import NEAR_TIE_GAP, Divergence, Run, first_difference, stages_of
from ops.harness.boundary import InputError
from ops.harness.decoding import EncodedPrompt, answer_to, encode
from ops.harness.engines import Engines, engines_of
from ops.harness.prompts import Prompt
from ops.harness.settings import Setup, device_of
from schemas import DecodeRequest, SamplingParams
from workers.bundle import Bundle, load_bundle
from workers.end_tokens import end_tokens

COMPARED = PLAIN
"""The peer that answers at temperature 0 are compared with."""


@dataclass(frozen=True)
class Plan:
    """The prompts and settings of a benchmark.

    peers: their modes, None for Hugging Face's but hf-static. seeded: whether requests carry a
    seed. lockstep: see `in_lockstep`. predict: whether requests carry the prompt's response as
    their prediction. quality: whether answers are compared with the target's distribution.
    """

    setup: Setup
    prompts: Sequence[Prompt]
    repeats: int
    max_tokens: int
    temperature: float
    concurrency: int
    seed: int
    peers: tuple[str, ...] | None = None
    top_p: float = 1.0
    seeded: bool = False
    lockstep: bool = False
    predict: bool = False
    quality: bool = False

    def sampling(self, repeat: int, max_tokens: int) -> SamplingParams:
        """Return the sampling parameters of a repeat's requests."""
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=max_tokens,
            seed=self.seed + repeat if self.seeded else None,
        )


@dataclass
class Measured:
    """Runs by name: of methods and of peers' modes."""

    peer_settings: dict[str, Any]
    peers: Sequence[str]
    skipped_too_long: int
    runs: dict[str, list[Run]] = field(default_factory=dict)
    run_seconds: dict[str, list[float]] = field(default_factory=dict)
    divergences: dict[str, list[Divergence]] = field(default_factory=dict)
    quality: dict[str, Any] = field(default_factory=dict)


async def measure(plan: Plan, bar: Progress) -> Measured:
    """Run all repeats. Each loads its engine anew, so that no cache survives from the last."""
    bundle = load_bundle(plan.setup.bundle)
    engine_config = plan.setup.engine
    longest = engine_config.max_context - plan.max_tokens
    encoded, skipped = encode(bundle, plan.prompts, longest, predict=plan.predict)
    with ExitStack() as started:
        peers = _started(plan, bundle, started)
        settings = {name: peer.settings() for name, peer in peers.items()}
        measured = Measured(settings, list(peers), skipped)
        answers = len(encoded) * (len(plan.setup.names) + len(peers))
        task = bar.add_task("answers", total=plan.repeats * answers)
        await _repeat_all(plan, bundle, encoded, peers, measured, lambda: bar.advance(task))
        if plan.temperature == 0 and COMPARED in peers:
            _compare(peers[COMPARED], plan, encoded, measured)
    if plan.quality:
        runs = {name: measured.runs[name] for name in plan.setup.names}
        measured.quality = quality_of(plan.setup, bundle, encoded, runs, plan.temperature, bar)
    return measured


def _started(plan: Plan, bundle: Bundle, stack: ExitStack) -> dict[str, PeerProcess]:
    """Return the processes of the peers' modes; the modes of one peer share a process.

    Raises InputError for a mode that is unknown, or cannot run here.
    """
    engine, wanted = plan.setup.engine, plan.peers
    if wanted == ():
        return {}
    found = dict[str, PeerProcess]()
    known = (*HF_MODES, *CPP_MODES)
    for mode in wanted or ():
        if mode not in known:
            raise InputError(f"--peers: {mode!r} is none of {', '.join(known)}, none")
    if wanted is None or {*wanted} & {*HF_MODES}:
        hugging_face = PeerProcess(
            HuggingFace, bundle, engine.dtype, engine.threads, device_of(engine)
        )
        stack.enter_context(closing(hugging_face))
        found |= dict.fromkeys(hugging_face.modes, hugging_face)
    if {*(wanted or ())} & {*CPP_MODES}:
        file, end = gguf_file(bundle), end_tokens(bundle)
        cpp = PeerProcess(LlamaCpp, file, end, engine.threads, engine.max_context)
        stack.enter_context(closing(cpp))
        found |= dict.fromkeys(cpp.modes, cpp)
    if wanted is None:
        wanted = tuple(mode for mode in found if mode != STATIC_MODE)
    for mode in wanted:
        if mode not in found:
            raise InputError(f"--peers: {mode} needs a draft model, which the bundle has not")
    return {mode: found[mode] for mode in wanted}


async def _repeat_all(
    plan: Plan,
    bundle: Bundle,
    encoded: Sequence[EncodedPrompt],
    peers: Mapping[str, PeerProcess],
    measured: Measured,
    advance: Callable[[], None],
) -> None:
    names = [*plan.setup.names, *peers]
    for repeat in range(plan.repeats):
        order = random.Random(f"{plan.seed} {repeat}")
        if plan.lockstep:
            asked = Asked(plan.sampling(repeat, plan.max_tokens), repeat)
            runs, seconds = await in_lockstep(
                *(plan.setup, bundle, order.sample(encoded, len(encoded)), asked),
                plan.concurrency,
                advance,
            )
            for run in runs:
                measured.runs.setdefault(run.method, []).append(run)
            for name, took in seconds.items():
                measured.run_seconds.setdefault(name, []).append(took)
            continue
        with engines_of(plan.setup, bundle, f"bench-{repeat}") as engines:
            bench = _Repeat(plan, repeat, engines, peers, advance)
            await bench.warm_up(encoded[0], names)
            if plan.concurrency == 1:
                await bench.prompt_by_prompt(encoded, names, order, measured)
            else:
                await bench.method_by_method(encoded, names, order, measured)


class _Repeat:
    def __init__(
        self,
        plan: Plan,
        repeat: int,
        engines: Engines,
        peers: Mapping[str, PeerProcess],
        advance: Callable[[], None],
    ) -> None:
        self._plan, self._repeat, self._engines, self._peers = plan, repeat, engines, peers
        self._advance = advance

    async def warm_up(self, encoded: EncodedPrompt, names: Sequence[str]) -> None:
        """One short answer each: first calls allocate."""
        for name in names:
            await self._answer(name, encoded, max_tokens=8)

    async def prompt_by_prompt(
        self,
        encoded: Sequence[EncodedPrompt],
        names: Sequence[str],
        order: random.Random,
        measured: Measured,
    ) -> None:
        """One request at a time; all that is compared runs within seconds of each other."""
        for item in order.sample(encoded, len(encoded)):
            for name in order.sample(names, len(names)):
                await self._alone(name)
                run = await self._answer(name, item, self._plan.max_tokens)
                measured.runs.setdefault(name, []).append(run)
                self._advance()

    async def method_by_method(
        self,
        encoded: Sequence[EncodedPrompt],
        names: Sequence[str],
        order: random.Random,
        measured: Measured,
    ) -> None:
        """Several requests in flight, all of one method; peers answer one by one."""
        # in one order for all: which answers come last decides how empty the last batches are
        shuffled = order.sample(encoded, len(encoded))
        for name in order.sample(names, len(names)):
            places = asyncio.Semaphore(1 if name in self._peers else self._plan.concurrency)

            async def one(item: EncodedPrompt, name: str, places: asyncio.Semaphore) -> Run:
                async with places:
                    run = await self._answer(name, item, self._plan.max_tokens)
                self._advance()
                return run

            jobs: list[Awaitable[Run]] = [one(item, name, places) for item in shuffled]
            await self._alone(name)
            started = time.perf_counter()
            runs = await asyncio.gather(*jobs)
            measured.run_seconds.setdefault(name, []).append(time.perf_counter() - started)
            measured.runs.setdefault(name, []).extend(runs)

    async def _alone(self, name: str) -> None:
        await self._engines.others_asleep(None if name in self._peers else name)

    async def _answer(self, name: str, item: EncodedPrompt, max_tokens: int) -> Run:
        labels = (name, item.prompt.id, item.prompt.domain, self._repeat)
        sampling = self._plan.sampling(self._repeat, max_tokens)
        if name in self._peers:
            token_ids, seconds = await self._peers[name].generate(
                name, item.token_ids, sampling, self._plan.seed + self._repeat
            )
            return Run(*labels, token_ids, seconds)
        request_id = f"{item.prompt.id}-{name}-{self._repeat}"
        scope = f"{name} {self._repeat} {max_tokens}"  # a warm-up answers the same with fewer
        request = DecodeRequest(
            request_id=request_id,
            method=name,
            prompt_token_ids=item.token_ids,
            predicted_token_ids=item.predicted,
            sampling=sampling,
            scope=scope,
        )
        answer = await answer_to(self._engines, request)
        return Run(
            *labels,
            answer.token_ids,
            answer.seconds,
            answer.first_token_seconds,
            answer.stats.target_steps,
            answer.stats.looping,
            stages_of(answer.stats),
        )


def _compare(
    hf: PeerProcess, plan: Plan, encoded: Sequence[EncodedPrompt], measured: Measured
) -> None:
    """Fill in the divergences of every method from Hugging Face's plain greedy answers."""
    reference = {run.prompt_id: run.token_ids for run in measured.runs[COMPARED]}
    prompts = {item.prompt.id: item.token_ids for item in encoded}
    for name in plan.setup.names:
        found: dict[str, Divergence] = {}
        for run in measured.runs[name]:
            expected = reference[run.prompt_id]
            position = first_difference(run.token_ids, expected)
            if position is None or run.prompt_id in found:
                continue
            gap = hf.top_two_gap((*prompts[run.prompt_id], *expected[:position]))
            near_tie = plan.setup.engine.dtype == "float32" and gap < NEAR_TIE_GAP
            found[run.prompt_id] = Divergence(run.prompt_id, position, gap, near_tie)
        measured.divergences[name] = list(found.values())
