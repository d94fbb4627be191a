"""Steps of whole batches, and what drafting, verification, sampling and the host take of them."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil
from rich.progress import Progress

from ops.harness.decoding import Answer, EncodedPrompt, decode, encode
from ops.harness.engines import Engines, engines_of
from ops.harness.prompts import Prompt
from ops.harness.settings import Setup
from schemas import SamplingParams
from workers.bundle import load_bundle

STAGES = ("draft", "verify", "sample", "host")
MIB = 2**20


@dataclass(frozen=True)
class StagesPlan:
    """The prompts and settings of a benchmark. Every answer has exactly `max_tokens` tokens."""

    setup: Setup
    prompts: Sequence[Prompt]
    batches: Sequence[int]
    max_tokens: int
    temperature: float
    seed: int


async def measure(plan: StagesPlan, bar: Progress) -> tuple[dict[str, dict[str, Any]], float]:
    """Measure steps and their stages by method and batch size.

    Returns milliseconds of a step and its stages, and tokens and sequences per step; and the MiB
    that this process grew while loading the models.
    """
    bundle = load_bundle(plan.setup.bundle)
    encoded, _ = encode(bundle, plan.prompts, plan.setup.engine.max_context - plan.max_tokens)
    before = _own_mib()
    found: dict[str, dict[str, Any]] = {}
    with engines_of(plan.setup, bundle, "stages") as engines:
        grown = _own_mib() - before
        task = bar.add_task("batches", total=len(plan.setup.names) * len(plan.batches))
        for name in plan.setup.names:
            await _batch(plan, engines, encoded, name, 1, "warm-up")
            for batch in plan.batches:
                answers = await _batch(plan, engines, encoded, name, batch, str(batch))
                found.setdefault(name, {})[str(batch)] = step_of(answers)
                bar.advance(task)
    return found, grown


def step_of(answers: Sequence[Answer]) -> dict[str, float]:
    """Return the mean decode step of answers that shared their steps, in milliseconds.

    A sequence's seconds are those of its steps, so that the sum over sequences divided by the sum
    of their steps is a step's time. host: the rest of decoding, without other requests' prefills.
    """
    stats = [answer.stats for answer in answers]
    steps = sum(s.target_steps - 1 for s in stats)
    sums = {
        "draft": sum(s.draft_seconds for s in stats),
        "verify": sum(s.verify_seconds for s in stats),
        "sample": sum(s.sample_seconds for s in stats),
        "host": sum(s.other_seconds for s in stats),
    }
    parts = {stage: 1e3 * seconds / steps for stage, seconds in sums.items()}
    return {
        "step_ms": sum(parts.values()),
        **{f"{stage}_ms": value for stage, value in parts.items()},
        "tokens_per_step": sum(s.output_tokens - 1 for s in stats) / steps,
        "mean_batch": sum(s.mean_batch * (s.target_steps - 1) for s in stats) / steps,
    }


async def _batch(
    plan: StagesPlan,
    engines: Engines,
    encoded: Sequence[EncodedPrompt],
    method: str,
    batch: int,
    label: str,
) -> list[Answer]:
    order = random.Random(f"{plan.seed} {batch}")
    chosen = [order.choice(encoded) for _ in range(batch)]
    sampling = SamplingParams(
        temperature=plan.temperature, max_tokens=plan.max_tokens, seed=plan.seed, ignore_eos=True
    )
    return await asyncio.gather(
        *(
            decode(
                engines,
                f"{method}-{label}-{at}",
                method,
                item.token_ids,
                sampling,
                scope=f"{method} {label}",
            )
            for at, item in enumerate(chosen)
        )
    )


def _own_mib() -> float:
    """What this process alone holds (USS)."""
    return float(psutil.Process().memory_full_info().uss) / MIB
