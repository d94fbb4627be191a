"""The runs of `bench quality`: variants answer the prompts, then the target scores answers."""

import asyncio
import random
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

import torch
from rich.progress import Progress

from ops.bench.decode.figures import Run
from ops.bench.quality.dials import Variant
from ops.bench.quality.divergence import SHARPER, Reading
from ops.bench.quality.figures import GivenAnswer
from ops.harness.decoding import Answer, EncodedPrompt, decode, encode
from ops.harness.engines import Engines, engines_of
from ops.harness.forwards import answer_logits
from ops.harness.prompts import Prompt
from ops.harness.settings import Setup
from schemas import SamplingParams
from workers.bundle import load_bundle
from workers.torch_engine.models.model import load_target


@dataclass(frozen=True)
class QualityPlan:
    """The prompts and settings of a benchmark; the set-up has the variants' methods."""

    setup: Setup
    variants: Sequence[Variant]
    prompts: Sequence[Prompt]
    temperatures: Sequence[float]
    max_tokens: int
    concurrency: int
    seed: int

    def names_at(self, temperature: float) -> list[str]:
        """Return the methods that answer at this temperature."""
        return [v.spec.name for v in self.variants if v.differs_at(temperature)]


Said = dict[tuple[float, str, str], Answer]
"""Answers by temperature, method and prompt id."""


async def measure(
    plan: QualityPlan, bar: Progress
) -> tuple[dict[float, dict[str, list[GivenAnswer]]], int]:
    """Return the answers by temperature and method, and the number of prompts left out as too long.

    Answers are in the order of the prompts.
    """
    bundle = load_bundle(plan.setup.bundle)
    longest = plan.setup.engine.max_context - plan.max_tokens
    encoded, skipped = encode(bundle, plan.prompts, longest)
    with engines_of(plan.setup, bundle, "quality") as engines:
        said = await _answers(plan, engines, encoded, bar)
    cpu = torch.device("cpu")
    model = load_target(bundle.part("target"), plan.setup.engine.dtype, cpu)
    read = dict[tuple[float, str, tuple[int, ...]], Reading]()
    found: dict[float, dict[str, list[GivenAnswer]]] = {}
    task = bar.add_task("read", total=len(said))
    for temperature in plan.temperatures:
        for name in plan.names_at(temperature):
            given = found.setdefault(temperature, {}).setdefault(name, [])
            for item in encoded:
                answer = said[temperature, name, item.prompt.id]
                # at temperature 0 most answers are plain decoding's
                key = (temperature, item.prompt.id, answer.token_ids)
                if key not in read:
                    logits = answer_logits(model, item.token_ids, answer.token_ids)
                    read[key] = read_answer(logits, answer.token_ids, temperature)
                given.append(GivenAnswer(_run(name, item, answer), answer.text, read[key]))
                bar.advance(task)
    return found, skipped


@torch.inference_mode()
def read_answer(logits: torch.Tensor, tokens: Sequence[int], temperature: float) -> Reading:
    """Score an answer's tokens by the target's logits [tokens, vocab] at their positions."""
    scores = logits.float() / (temperature or 1.0)
    log_p, said = scores.log_softmax(-1), torch.tensor(tokens)[:, None]
    entropy = torch.special.entr(log_p.exp()).sum(-1)
    expected = entropy if temperature > 0.0 else -log_p.amax(-1)
    own = log_p.gather(1, said)
    gains = [by * own - (by * log_p).logsumexp(-1, keepdim=True) - own for by in SHARPER]
    return Reading(
        nats=-own[:, 0].double().numpy(),
        expected=expected.double().numpy(),
        gains=torch.cat(gains, dim=1).double().numpy(),
    )


def _run(name: str, item: EncodedPrompt, answer: Answer) -> Run:
    return Run(
        *(name, item.prompt.id, item.prompt.domain, 0, answer.token_ids, answer.seconds),
        answer.first_token_seconds,
        answer.stats.target_steps,
        answer.stats.looping,
    )


async def _answers(
    plan: QualityPlan, engines: Engines, encoded: Sequence[EncodedPrompt], bar: Progress
) -> Said:
    total = sum(len(plan.names_at(t)) for t in plan.temperatures) * len(encoded)
    task, said = bar.add_task("answers", total=total), Said()
    for temperature in plan.temperatures:
        names = plan.names_at(temperature)
        order = random.Random(f"{plan.seed} {temperature}")

        async def one(
            name: str, item: EncodedPrompt, places: asyncio.Semaphore, temperature: float
        ) -> None:
            async with places:
                await engines.others_asleep(name)
                said[temperature, name, item.prompt.id] = await _answer(
                    plan, engines, name, item, temperature
                )
            bar.advance(task)

        for name in names:  # first calls allocate
            sampling = SamplingParams(temperature=temperature, max_tokens=8)
            await decode(engines, f"warm-{name}", name, encoded[0].token_ids, sampling)
        for turn in _turns(plan.concurrency, names, encoded, order):
            places = asyncio.Semaphore(plan.concurrency)
            jobs: list[Awaitable[None]] = [one(*job, places, temperature) for job in turn]
            await asyncio.gather(*jobs)
    return said


def _turns(
    concurrency: int,
    names: Sequence[str],
    encoded: Sequence[EncodedPrompt],
    order: random.Random,
) -> list[list[tuple[str, EncodedPrompt]]]:
    """Return the groups of answers that are decoded together.

    With one request at a time, all methods follow each other on a prompt in random order. Several
    requests in flight are all of one method.
    """
    shuffled = order.sample(encoded, len(encoded))
    if concurrency == 1:
        return [[(name, item)] for item in shuffled for name in order.sample(names, len(names))]
    return [[(name, item) for item in shuffled] for name in order.sample(names, len(names))]


async def _answer(
    plan: QualityPlan, engines: Engines, name: str, item: EncodedPrompt, temperature: float
) -> Answer:
    sampling = SamplingParams(temperature=temperature, max_tokens=plan.max_tokens)
    label = f"{name}-{temperature:g}"
    return await decode(
        engines, f"{item.prompt.id}-{label}", name, item.token_ids, sampling, scope=label
    )
