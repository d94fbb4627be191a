"""`bench decode`: every method and peer on the same prompts, one clock; figures and tables."""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group
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
from ops.bench.decode.quality import quality_of, quality_tables
from ops.bench.stats import (
    NEAR_TIE_GAP,
    STAGES,
    Divergence,
    Run,
    domain_mean,
    first_difference,
    group,
    match_figures,
    rates,
    speedup_key,
    stages_of,
    summarise,
)
from ops.harness.boundary import InputError
from ops.harness.decoding import EncodedPrompt, answer_to, encode
from ops.harness.engines import Engines, engines_of
from ops.harness.machine import describe_machine
from ops.harness.output import table
from ops.harness.prompts import Prompt, fingerprint
from ops.harness.settings import Setup, device_of
from router.fit.speedup import MIN_TOKENS, baseline_of
from schemas import DecodeRequest, SamplingParams
from schemas.method import PLAIN_METHODS
from workers.bundle import Bundle, load_bundle
from workers.end_tokens import end_tokens

COMPARED = PLAIN
"""The peer that answers at temperature 0 are compared with."""
COLUMNS = {
    "tokens_per_s": "tok/s",
    **{speedup_key(name): f"×{name}" for name in PLAIN_METHODS},
    "speedup_vs_hf": "×HF",
    "mat": "MAT",
    "match_rate": "match",
    "loop_rate": "loops",
    "prompts": "prompts",
}


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


def figures_of(plan: Plan, measured: Measured) -> dict[str, Any]:
    """Return the figures that `--json` writes."""
    return {
        "methods": {name: _method(name, plan, measured) for name in plan.setup.names},
        "peers": {
            name: {"tokens_per_s": domain_mean(rates(measured.runs[name]))}
            for name in measured.peers
        },
        **({"quality": measured.quality} if plan.quality else {}),
        "settings": _settings(plan, measured),
    }


def tables_of(figures: dict[str, Any]) -> Iterable[Group | str]:
    """Yield tables: a line per method, a line per domain, and the gap of every divergence."""
    methods = figures["methods"]
    plain = [name for name in PLAIN_METHODS if name in methods]
    absent = {speedup_key(name) for name in PLAIN_METHODS if name not in plain}
    columns = {key: title for key, title in COLUMNS.items() if key not in absent}
    if figures["settings"]["concurrency"] > 1:
        columns["throughput_tokens_per_s"] = "all/s"
    rows = [[name, *(m[c] for c in columns)] for name, m in methods.items()]
    rows += [
        [name, peer["tokens_per_s"], *[None] * (len(columns) - 1)]
        for name, peer in figures["peers"].items()
    ]
    yield table(
        "Decoding, compared with Hugging Face (HF) and other peers",
        ["method", *columns.values()],
        rows,
    )
    modes = list(figures["peers"])
    yield table(
        "Speedup with its 95% interval",
        ["method", *(f"over {name}" for name in plain), *(f"over {mode}" for mode in modes)],
        [[name, *_intervals(method, plain, modes)] for name, method in methods.items()],
    )
    if told := {name: m["stage_ms"] for name, m in methods.items() if m["stage_ms"]}:
        stages = ("step", *STAGES)
        yield table(
            "Milliseconds of a decode step",
            ["method", *stages],
            [[name, *(own[stage] for stage in stages)] for name, own in told.items()],
        )
    baseline = figures["settings"]["baseline"]
    key = speedup_key(baseline)
    domains = sorted({domain for m in methods.values() for domain in m["by_domain"]})
    yield table(
        f"Speedup over {baseline}, by domain",
        ["domain", *methods],
        [[d, *(m["by_domain"].get(d, {}).get(key) for m in methods.values())] for d in domains],
    )
    for name, method in methods.items():
        for found in method["divergences"]:
            kind = "near tie" if found["near_tie"] else "divergence"
            yield (
                f"{name}: {kind} on {found['prompt_id']} at token {found['position']}, "
                f"gap {found['gap']:.2e}"
            )
    if "quality" in figures:
        yield from quality_tables(figures["quality"])


def _intervals(method: dict[str, Any], plain: list[str], modes: list[str]) -> list[str]:
    pairs = [(method[speedup_key(n)], method[f"{speedup_key(n)}_ci95"]) for n in plain]
    pairs += [tuple(method["speedup_vs_peers"][mode].values()) for mode in modes]
    return [f"{mean:.2f} ({ci[0]:.2f} to {ci[1]:.2f})" if ci else "–" for mean, ci in pairs]


def _method(name: str, plan: Plan, measured: Measured) -> dict[str, Any]:
    runs = measured.runs[name]
    theirs = {name: measured.runs[name] for name in measured.peers}
    plain = {n: measured.runs[n] for n in PLAIN_METHODS if n in measured.runs}
    figures = summarise(runs, plain, theirs, plan.seed)
    match: dict[str, Any] = {"match_rate": None, "near_tie_rate": None, "divergences": []}
    if name in measured.divergences:
        match = match_figures(len(group(runs)), measured.divergences[name])
    figures["throughput_tokens_per_s"] = _throughput(name, measured)
    return figures | match


def _throughput(name: str, measured: Measured) -> float:
    """Output tokens of a whole run over its wall-clock seconds, median over the repeats.

    One request at a time leaves time to other methods: then the requests' own seconds count.
    """
    tokens, alone = dict[int, int](), dict[int, float]()
    for run in measured.runs[name]:
        tokens[run.repeat] = tokens.get(run.repeat, 0) + len(run.token_ids)
        alone[run.repeat] = alone.get(run.repeat, 0.0) + run.seconds
    seconds = measured.run_seconds.get(name) or [alone[repeat] for repeat in sorted(alone)]
    return statistics.median(tokens[repeat] / s for repeat, s in enumerate(seconds))


def _settings(plan: Plan, measured: Measured) -> dict[str, Any]:
    domains: dict[str, int] = {}
    for prompt in plan.prompts:
        domains[prompt.domain] = domains.get(prompt.domain, 0) + 1
    return {
        **describe_machine(),
        "engine": plan.setup.engine.model_dump(mode="json"),
        "dtype": plan.setup.engine.dtype,
        "threads": plan.setup.engine.threads,
        "bundle": str(plan.setup.bundle),
        "methods": {spec.name: spec.settings_hash() for spec in plan.setup.methods},
        "baseline": baseline_of(plan.setup.names),
        "repeats": plan.repeats,
        "max_tokens": plan.max_tokens,
        "temperature": plan.temperature,
        "top_p": plan.top_p,
        "seeded": plan.seeded,
        "predict": plan.predict,
        "lockstep": plan.lockstep,
        "concurrency": plan.concurrency,
        "seed": plan.seed,
        "min_tokens_for_speed": MIN_TOKENS,
        "prompts": {
            "sha256": fingerprint(plan.prompts),
            "domains": domains,
            "skipped_too_long": measured.skipped_too_long,
            "ids": [prompt.id for prompt in plan.prompts],
        },
        "peers": measured.peer_settings,
    }
