"""The tracing behind `specadapt trace`: plain answers in batches, then every method over them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.progress import Progress

from ops.harness.boundary import InputError
from ops.harness.decoding import EncodedPrompt, encode
from ops.harness.machine import describe_machine, measured_under
from ops.harness.prompts import Prompt
from ops.harness.settings import Setup
from ops.tables.trace_answers import PlainAnswer, answers_for, earlier_answers
from ops.tables.trace_store import TracedAnswer, TraceStore
from router.fit.speedup import BASELINE
from schemas import MethodSpec, SamplingParams
from schemas.profile import ProfileMeta
from workers.bundle import load_bundle
from workers.torch_engine.tracing.given_text import GivenText
from workers.torch_engine.tracing.tracer import Tracer

OWN = 0.9
"""Least share of an answer's tokens that must be the target's most likely ones."""
ROUNDS = 4
"""Batches of prompts that are answered, traced and written together."""


@dataclass(frozen=True)
class TracePlan:
    """The prompts and settings of a trace. The set-up contains a plain method.

    answers: an earlier trace of this target whose answers are used instead of decoding.
    """

    setup: Setup
    prompts: Sequence[Prompt]
    max_tokens: int
    temperature: float
    batch: int
    seed: int
    answers: Path | None = None

    @property
    def sampling(self) -> SamplingParams:
        """How every prompt is answered."""
        return SamplingParams(
            temperature=self.temperature, seed=self.seed, max_tokens=self.max_tokens
        )

    @property
    def drafting(self) -> list[MethodSpec]:
        """The methods that draft."""
        return [spec for spec in self.setup.methods if spec.drafter != "none"]


async def run_trace(plan: TracePlan, out: Path, bar: Progress) -> int:
    """Trace the prompts that the folder lacks; return the number of prompts that were too long.

    Raises InputError if the folder's traces are of another bundle or other settings.
    """
    bundle = load_bundle(plan.setup.bundle)
    config = plan.setup.engine
    encoded, skipped = encode(bundle, plan.prompts, config.max_context - plan.max_tokens)
    store = TraceStore(out, _meta(plan))
    done = store.traced(plan.temperature)
    todo = sorted(
        (item for item in encoded if item.prompt.id not in done), key=lambda i: len(i.token_ids)
    )
    known = (
        earlier_answers(plan.answers, encoded, plan.temperature) if plan.answers is not None else {}
    )
    torch.set_num_threads(config.threads)
    tracer = Tracer(plan.drafting, bundle, config, plan.batch)
    task = bar.add_task("prompts", total=len(todo))
    with answers_for(todo, known, plan.setup, plan.batch) as answered:
        for start in range(0, len(todo), ROUNDS * plan.batch):
            items = todo[start : start + ROUNDS * plan.batch]
            answers = await answered.to(items, plan.sampling)
            rows = [_row(plan, *pair, BASELINE) for pair in zip(items, answers, strict=True)]
            order = sorted(range(len(items)), key=lambda i: len(answers[i].token_ids))
            for first in range(0, len(order), plan.batch):
                chosen = order[first : first + plan.batch]
                pairs = [(items[i], answers[i]) for i in chosen]
                rows += await _traced(plan, tracer, pairs)
                bar.advance(task, len(chosen))
            store.add(rows)
    return skipped


async def _traced(
    plan: TracePlan, tracer: Tracer, pairs: Sequence[tuple[EncodedPrompt, PlainAnswer]]
) -> list[TracedAnswer]:
    texts = [tracer.read(item.token_ids, answer.token_ids, plan.sampling) for item, answer in pairs]
    _refuse_strangers(plan, texts)
    rows = []
    for spec in plan.drafting:
        traces = await tracer.trace(spec.name, texts)
        rows += [
            replace(_row(plan, *pair, spec.name), kept=trace.kept, confidences=trace.confidences)
            for pair, trace in zip(pairs, traces, strict=True)
        ]
    return rows


def _refuse_strangers(plan: TracePlan, texts: Sequence[GivenText]) -> None:
    """Raises InputError where answers that were given are another target's: at temperature 0 its
    tokens are the target's favourites, but for near ties between forwards of other shapes."""
    p = [value for text in texts for value in text.p]
    if plan.temperature == 0.0 and sum(p) < OWN * len(p):
        raise InputError(f"--answers: {plan.answers} has answers of another target")


def _row(plan: TracePlan, item: EncodedPrompt, answer: PlainAnswer, method: str) -> TracedAnswer:
    """The answer's row under a method that drafts nothing."""
    stopped = len(answer.token_ids) < plan.max_tokens
    nothing: tuple[tuple[float, ...], ...] = ((),) * (len(answer.token_ids) - 1)
    return TracedAnswer(
        prompt_id=item.prompt.id,
        domain=item.prompt.domain,
        text=item.prompt.text,
        prompt=item.token_ids,
        temperature=plan.temperature,
        method=method,
        answer=answer.token_ids,
        finished="stop" if stopped else "length",
        looping=answer.looping,
        kept=nothing,
        confidences=nothing,
    )


def _meta(plan: TracePlan) -> ProfileMeta:
    specs = plan.setup.methods
    return ProfileMeta(
        measured_under=measured_under(plan.setup, load_bundle(plan.setup.bundle)),
        methods=tuple(spec.name for spec in specs),
        settings_hashes={spec.name: spec.settings_hash() for spec in specs},
        lossless={spec.name: spec.lossless for spec in specs},
        max_tokens=plan.max_tokens,
        seed=plan.seed,
        provenance=describe_machine(),
    )
