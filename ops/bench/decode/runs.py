"""`bench decode`: every method and peer on the same prompts, one clock; figures and tables."""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from rich.console import Group
from rich.progress import Progress

from ops.bench import stats
from ops.bench.decode.lockstep import WARM_UP_TOKENS, Asked, in_lockstep
from ops.bench.decode.peers import PLAIN, PeerProcess, start_peers
from ops.bench.decode.quality import quality_of, quality_tables
from ops.bench.stats import Divergence, Run
from ops.common.decoding import EncodedPrompt, Engines, answer_to, encode, engines_of
from ops.common.output import table, with_interval
from ops.common.prompts import Prompt, fingerprint
from ops.common.settings import Setup, describe_machine
from router.fit.speedup import MIN_TOKENS, baseline_of
from schemas import SamplingParams
from schemas.config import PLAIN_METHODS
from workers.bundle import Bundle, load_bundle

COLUMNS = {
    "tokens_per_s": "tok/s",
    "decode_tokens_per_s": "after the first",
    "throughput_tokens_per_s": "all/s",
    "mat": "MAT",
    "match_rate": "match",
    "same_text_rate": "as plain",
    "loop_rate": "loops",
    "prompts": "prompts",
}


@dataclass(frozen=True)
class Plan:
    """The prompts and settings of a benchmark.

    peers: their modes, None for Hugging Face's but hf-static. seeded: whether requests carry a
    seed. lockstep: see `in_lockstep`. quality: whether answers are compared with the target's
    distribution.
    """

    setup: Setup
    prompts: Sequence[Prompt]
    repeats: int
    max_tokens: int
    temperature: float
    concurrency: int
    seed: int
    peers: tuple[str, ...] | None = None
    seeded: bool = False
    lockstep: bool = False
    quality: bool = False

    def sampling(self, repeat: int, max_tokens: int) -> SamplingParams:
        """Return the sampling parameters of a repeat's requests."""
        return SamplingParams(
            temperature=self.temperature,
            max_tokens=max_tokens,
            seed=self.seed + repeat if self.seeded else None,
        )


@dataclass
class Measured:
    """Runs by name: of methods and of peers' modes, and the seconds of each repeat. threads: of our
    own engine in each repeat, which may be one fewer than configured."""

    peers: Sequence[str]
    skipped_too_long: int
    runs: dict[str, list[Run]] = field(default_factory=dict)
    run_seconds: dict[str, list[float]] = field(default_factory=dict)
    threads: list[int] = field(default_factory=list)
    divergences: dict[str, list[Divergence]] = field(default_factory=dict)
    quality: dict[str, Any] = field(default_factory=dict)


async def measure(plan: Plan, bar: Progress) -> Measured:
    """Run all repeats. Each loads its engine anew, so that no cache survives from the last."""
    bundle = load_bundle(plan.setup.bundle)
    longest = plan.setup.engine.max_context - plan.max_tokens
    encoded, skipped = encode(bundle, plan.prompts, longest)
    with ExitStack() as started:
        peers = start_peers(plan.peers, bundle, plan.setup.engine, started)
        measured = Measured(list(peers), skipped)
        answers = len(encoded) * (len(plan.setup.names) + len(peers))
        task = bar.add_task("answers", total=plan.repeats * answers)
        await _repeat_all(plan, bundle, encoded, peers, measured, lambda: bar.advance(task))
        if plan.temperature == 0 and PLAIN in peers:
            _compare(peers[PLAIN], plan, encoded, measured)
    if plan.quality:
        runs = {name: measured.runs[name] for name in plan.setup.names}
        measured.quality = quality_of(plan.setup, bundle, encoded, runs, plan.temperature, bar)
    return measured


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
        asked = Asked(plan.sampling(repeat, plan.max_tokens), repeat)
        if plan.lockstep:
            shuffled = order.sample(encoded, len(encoded))
            found = await in_lockstep(
                *(plan.setup, bundle, shuffled, asked, plan.concurrency), advance
            )
            measured.threads.append(torch.get_num_threads())
        else:
            with engines_of(plan.setup, bundle, f"bench-{repeat}") as engines:
                bench = _Repeat(asked, plan, engines, peers, advance)
                found = await bench.in_turns(encoded, names, order)
                measured.threads.append(engines.threads or plan.setup.engine.threads)
        for name, (runs, seconds) in found.items():
            measured.runs.setdefault(name, []).extend(runs)
            measured.run_seconds.setdefault(name, []).append(seconds)


@dataclass(frozen=True)
class _Repeat:
    asked: Asked
    plan: Plan
    engines: Engines
    peers: Mapping[str, PeerProcess]
    advance: Callable[[], None]

    async def in_turns(
        self, encoded: Sequence[EncodedPrompt], names: Sequence[str], order: random.Random
    ) -> dict[str, tuple[list[Run], float]]:
        """Return by name the runs and the wall-clock seconds of its turns.

        One request at a time, the turns change after each prompt, and all that is compared runs
        within seconds of each other. With several in flight, each has one turn for all prompts.
        """
        short = self.plan.sampling(self.asked.repeat, WARM_UP_TOKENS)
        for name in names:  # first calls allocate
            await self._answer(name, encoded[0], replace(self.asked, sampling=short))
        # in one order for all: which answers come last decides how empty the last batches are
        shuffled, alone = order.sample(encoded, len(encoded)), self.plan.concurrency == 1
        runs, seconds = {name: list[Run]() for name in names}, dict.fromkeys(names, 0.0)
        for items in [[item] for item in shuffled] if alone else [shuffled]:
            for name in order.sample(names, len(names)):
                await self.engines.others_asleep(None if name in self.peers else name)
                started = time.perf_counter()
                runs[name] += await self._turn(name, items)
                seconds[name] += time.perf_counter() - started
        return {name: (runs[name], seconds[name]) for name in names}

    async def _turn(self, name: str, items: Sequence[EncodedPrompt]) -> list[Run]:
        """Answer prompts with several requests in flight; peers answer one by one."""
        slots = asyncio.Semaphore(1 if name in self.peers else self.plan.concurrency)

        async def one(item: EncodedPrompt) -> Run:
            async with slots:
                run = await self._answer(name, item, self.asked)
            self.advance()
            return run

        return list(await asyncio.gather(*map(one, items)))

    async def _answer(self, name: str, item: EncodedPrompt, asked: Asked) -> Run:
        labels = (item.prompt.id, item.prompt.domain, asked.repeat)
        if name in self.peers:
            token_ids, seconds = await self.peers[name].generate(
                name, item.token_ids, asked.sampling, self.plan.seed + asked.repeat
            )
            return Run(*labels, len(token_ids), seconds, token_ids=token_ids)
        answer = await answer_to(self.engines, asked.of(item, name))
        took = answer.seconds, answer.first_token_seconds
        return stats.run_of(labels, answer.token_ids, took, answer.stats)


def _compare(
    hf: PeerProcess, plan: Plan, encoded: Sequence[EncodedPrompt], measured: Measured
) -> None:
    """Fill in the divergences of every method from Hugging Face's plain greedy answers."""
    reference = {run.prompt_id: run.token_ids for run in measured.runs[PLAIN]}
    prompts = {item.prompt.id: item.token_ids for item in encoded}
    for name in plan.setup.names:
        found: dict[str, Divergence] = {}
        for run in measured.runs[name]:
            expected = reference[run.prompt_id]
            position = stats.first_difference(run.token_ids, expected)
            if position is None or run.prompt_id in found:
                continue
            gap = hf.top_two_gap((*prompts[run.prompt_id], *expected[:position]))
            near_tie = plan.setup.engine.dtype == "float32" and gap < stats.NEAR_TIE_GAP
            found[run.prompt_id] = Divergence(run.prompt_id, position, gap, near_tie)
        measured.divergences[name] = list(found.values())


def figures_of(plan: Plan, measured: Measured) -> dict[str, Any]:
    """Return the figures that `--json` writes."""
    return {
        "methods": {name: _method(name, plan, measured) for name in plan.setup.names},
        "peers": {
            name: {"tokens_per_s": stats.domain_mean(stats.rates(measured.runs[name]))}
            for name in measured.peers
        },
        **({"quality": measured.quality} if plan.quality else {}),
        "settings": _settings(plan, measured),
    }


def tables_of(figures: dict[str, Any]) -> Iterable[Group | str]:
    """Yield tables: figures, speedups, stages, domains, the gaps of divergences, and quality."""
    methods = figures["methods"]
    rows = [[name, *(own[column] for column in COLUMNS)] for name, own in methods.items()]
    rows += [
        [name, peer["tokens_per_s"], *[None] * (len(COLUMNS) - 1)]
        for name, peer in figures["peers"].items()
    ]
    yield table("Decoding", ["method", *COLUMNS.values()], rows)
    others = next(iter(methods.values()))["over"]
    yield table(
        "Speedup with its 95% interval",
        ["method", *(f"over {other}" for other in others)],
        [
            [name, *(with_interval(*over.values()) for over in own["over"].values())]
            for name, own in methods.items()
        ],
    )
    if known := {name: own for name, own in methods.items() if own["verify_s"] is not None}:
        parts = [[1e3 * own[f"{name}_s"] for name in stats.STAGES] for own in known.values()]
        yield table(
            "Milliseconds of a decode step",
            ["method", "step", *stats.STAGES],
            [[name, sum(own), *own] for name, own in zip(known, parts, strict=True)],
        )
    domains = sorted({domain for own in methods.values() for domain in own["by_domain"]})
    yield table(
        f"Speedup over {figures['settings']['baseline']}, by domain",
        ["domain", *methods],
        [
            [d, *(own["by_domain"].get(d, {}).get("speedup") for own in methods.values())]
            for d in domains
        ],
    )
    for name, method in methods.items():
        for found in method["divergences"]:
            kind = "near tie" if found["near_tie"] else "divergence"
            where = f"on {found['prompt_id']} at token {found['position']}"
            yield f"{name}: {kind} {where}, gap {found['gap']:.2e}"
    if "quality" in figures:
        yield from quality_tables(figures["quality"])


def _method(name: str, plan: Plan, measured: Measured) -> dict[str, Any]:
    runs = measured.runs[name]
    others = [n for n in PLAIN_METHODS if n in measured.runs] + [*measured.peers]
    figures = stats.summarise(
        runs,
        {other: measured.runs[other] for other in others},
        baseline_of(plan.setup.names),
        plan.seed,
    )
    match: dict[str, Any] = {"match_rate": None, "near_tie_rate": None, "divergences": []}
    if name in measured.divergences:
        match = stats.match_figures(len(stats.group(runs)), measured.divergences[name])
    throughputs = [
        sum(run.tokens for run in runs if run.repeat == repeat) / seconds
        for repeat, seconds in enumerate(measured.run_seconds[name])
    ]
    speedups = {
        f"speedup_vs_{short}": figures["over"].get(other, {}).get("speedup")
        for short, other in (("naive", baseline_of(plan.setup.names)), ("hf", PLAIN))
    }
    throughput = statistics.median(throughputs)
    return {**figures, **speedups, "throughput_tokens_per_s": throughput, **match}


def _settings(plan: Plan, measured: Measured) -> dict[str, Any]:
    setup, engine = plan.setup, plan.setup.engine
    same = "repeats max_tokens temperature seeded lockstep concurrency seed"
    return {
        **describe_machine(),
        "engine": engine.model_dump(mode="json"),
        "dtype": engine.dtype,
        "threads": min(measured.threads),
        "bundle": str(setup.bundle),
        "methods": {spec.name: spec.settings_hash() for spec in setup.methods},
        "baseline": baseline_of(setup.names),
        **{name: getattr(plan, name) for name in same.split()},
        "min_tokens_for_speed": MIN_TOKENS,
        "prompts": {
            "sha256": fingerprint(plan.prompts),
            "domains": dict(Counter(prompt.domain for prompt in plan.prompts)),
            "skipped_too_long": measured.skipped_too_long,
            "ids": [prompt.id for prompt in plan.prompts],
        },
    }
