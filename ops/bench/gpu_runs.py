"""The runs of `bench gpu`: exactness against Hugging Face, then speed by batch size."""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from rich.progress import Progress

from ops.bench.decode.figures import NEAR_TIE_GAP, first_difference
from ops.bench.decode.huggingface import PLAIN, HuggingFace
from ops.bench.decode.peer_process import PeerProcess
from ops.harness.decoding import Answer, EncodedPrompt, decode, encode
from ops.harness.engines import Engines, engines_of
from ops.harness.machine import describe_machine, processor
from ops.harness.prompts import Prompt, fingerprint
from ops.harness.settings import Setup, device_of, with_dtype, with_places, with_room
from schemas import SamplingParams
from workers.bundle import Bundle, load_bundle
from workers.torch_engine.engine import TorchEngine

HF = "hf_plain"
WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Plan:
    """What is measured. sizes: requests at once. exact: prompts that are compared in float32."""

    setup: Setup
    prompts: Sequence[Prompt]
    sizes: Sequence[int]
    exact: int
    max_tokens: int
    temperature: float
    seed: int


async def measure(plan: Plan, bar: Progress) -> dict[str, Any]:
    """All figures; docs/measuring.md says what they mean."""
    bundle = load_bundle(plan.setup.bundle)
    setup = with_dtype(plan.setup)
    encoded, skipped = encode(bundle, plan.prompts, setup.engine.max_context - plan.max_tokens)
    names = setup.names
    rounds = 2 * min(plan.exact, len(encoded)) + len(plan.sizes)
    task = bar.add_task("rounds", total=rounds * len(names))
    advance = partial(bar.advance, task)
    exact = await exactness(plan, bundle, encoded[: plan.exact], advance)
    step_ms, speed, graphs = await speeds(replace(plan, setup=setup), bundle, encoded, advance)
    plain = await _plain_speed(plan, setup, bundle, encoded)
    return {
        "device": device_name(device_of(setup.engine)),
        "exact": exact,
        "step_ms": step_ms,
        "methods": speed,
        "hf": {HF: {"1": plain}},
        "cuda_graphs": graphs,
        "settings": settings(plan, setup, bundle) | {"skipped_too_long": skipped},
    }


def settings(plan: Plan, setup: Setup, bundle: Bundle) -> dict[str, Any]:
    """Describe what was measured, and where."""
    return {
        **describe_machine(),
        "bundle": f"{bundle.name}@{bundle.content_hash}",
        "dtype": setup.engine.dtype,
        "threads": setup.engine.threads,
        "max_tokens": plan.max_tokens,
        "temperature": plan.temperature,
        "seed": plan.seed,
        "prompts": {"sha256": fingerprint(plan.prompts), "count": len(plan.prompts)},
    }


def device_name(device: str) -> str:
    """The GPU's or the processor's."""
    return torch.cuda.get_device_name() if device == "cuda" else processor()


async def exactness(
    plan: Plan, bundle: Bundle, encoded: Sequence[EncodedPrompt], advance: Callable[..., None]
) -> dict[str, float]:
    """Return, by method, the share of greedy float32 answers that equal Hugging Face's.

    Near ties count as equal. Each prompt is decoded alone and in a batch of all methods.
    """
    exactly = plan.setup.engine.model_copy(update={"dtype": "float32"})
    setup = with_places(replace(plan.setup, engine=exactly), len(plan.setup.methods))
    greedy = SamplingParams(temperature=0.0, max_tokens=plan.max_tokens)
    held: dict[str, list[bool]] = {name: [] for name in setup.names}
    with closing(_hugging_face(bundle, setup)) as hf, engines_of(setup, bundle, "exact") as engines:
        for item in encoded:
            expected, _ = await hf.generate(PLAIN, item.token_ids, greedy, plan.seed)
            alone = {}
            for name in setup.names:
                alone[name] = await _decode(engines, name, item, greedy, f"alone {name}")
                advance()
            together = await asyncio.gather(
                *(_decode(engines, name, item, greedy, f"mixed {name}") for name in setup.names)
            )
            advance(len(setup.names))
            for answers in (alone, dict(zip(setup.names, together, strict=True))):
                for name, answer in answers.items():
                    held[name].append(_same(answer, expected, item, hf))
    return {name: statistics.mean(same) for name, same in held.items()}


def _same(answer: Answer, expected: Sequence[int], item: EncodedPrompt, hf: PeerProcess) -> bool:
    position = first_difference(answer.token_ids, expected)
    if position is None:
        return True
    return hf.top_two_gap((*item.token_ids, *expected[:position])) < NEAR_TIE_GAP


async def speeds(
    plan: Plan, bundle: Bundle, encoded: Sequence[EncodedPrompt], advance: Callable[..., None]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]], int]:
    """Return milliseconds of a step and tokens a second, by method and requests at once, and the
    CUDA graphs that our own engine's target ran in."""
    setup = plan.setup
    sampling = SamplingParams(temperature=plan.temperature, max_tokens=plan.max_tokens)
    warm = sampling.model_copy(update={"max_tokens": WARM_UP_TOKENS})
    step_ms: dict[str, dict[str, float]] = {name: {} for name in setup.names}
    speed: dict[str, dict[str, float]] = {name: {} for name in setup.names}
    with engines_of(with_room(setup, max(plan.sizes)), bundle, "speed") as engines:
        for size in plan.sizes:
            for name in setup.names:
                items = [encoded[i % len(encoded)] for i in range(size)]
                await _batch(engines, name, items, warm, f"warm {name} {size}")
                answers, seconds = await _batch(engines, name, items, sampling, f"{name} {size}")
                speed[name][str(size)] = sum(len(a.token_ids) for a in answers) / seconds
                step_ms[name][str(size)] = _step_ms(answers)
                advance()
        ours = {id(engine): engine for engine in map(engines.of, setup.names)}
        graphs = sum(e.cuda_graphs for e in ours.values() if isinstance(e, TorchEngine))
    return step_ms, speed, graphs


async def _plain_speed(
    plan: Plan, setup: Setup, bundle: Bundle, encoded: Sequence[EncodedPrompt]
) -> float:
    """Return tokens a second of Hugging Face's plain generate, one request at a time."""
    sampling = SamplingParams(temperature=plan.temperature, max_tokens=plan.max_tokens)
    warm = sampling.model_copy(update={"max_tokens": WARM_UP_TOKENS})
    with closing(_hugging_face(bundle, setup)) as hf:
        runs = [
            await hf.generate(PLAIN, e.token_ids, asked, plan.seed)
            for asked in (warm, sampling)
            for e in encoded[: plan.exact]
        ][-min(plan.exact, len(encoded)) :]
    return sum(len(tokens) for tokens, _ in runs) / sum(seconds for _, seconds in runs)


async def _batch(
    engines: Engines,
    name: str,
    items: Sequence[EncodedPrompt],
    sampling: SamplingParams,
    scope: str,
) -> tuple[Sequence[Answer], float]:
    """All at once, and the seconds until the last one has ended."""
    began = time.perf_counter()
    answers = await asyncio.gather(
        *(_decode(engines, name, item, sampling, scope, i) for i, item in enumerate(items))
    )
    return answers, time.perf_counter() - began


async def _decode(
    engines: Engines,
    name: str,
    item: EncodedPrompt,
    sampling: SamplingParams,
    scope: str,
    number: int = 0,
) -> Answer:
    request_id = f"{scope} {item.prompt.id} {number}"
    return await decode(engines, request_id, name, item.token_ids, sampling, scope=scope)


def _step_ms(answers: Sequence[Answer]) -> float:
    """The median answer's, prompts of others that were read meanwhile left out."""
    stats = [answer.stats for answer in answers if answer.stats.target_steps > 1]
    seconds = [(s.decode_seconds - s.stalled_seconds) / (s.target_steps - 1) for s in stats]
    return 1e3 * statistics.median(seconds) if seconds else float("nan")


def _hugging_face(bundle: Bundle, setup: Setup) -> PeerProcess:
    engine = setup.engine
    return PeerProcess(HuggingFace, bundle, engine.dtype, engine.threads, device_of(engine))
