"""Drafts of several methods at every position of known answers, a batch of answers at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from schemas import DecodeRequest, EngineConfig, MethodSpec, SamplingParams
from workers.batch_schedule import schedule_of
from workers.bundle import Bundle
from workers.end_tokens import end_tokens
from workers.stream import Stream
from workers.torch_engine.drafter_guard import DrafterGuard
from workers.torch_engine.drafters.suffix import Suffix
from workers.torch_engine.engine import load_models
from workers.torch_engine.materials import Materials
from workers.torch_engine.method import Method
from workers.torch_engine.models.kv_pool import Lease
from workers.torch_engine.parts import Drafter
from workers.torch_engine.sequence import DecodeSequence, generator
from workers.torch_engine.step import step
from workers.torch_engine.tracing.given_target import GivenTarget
from workers.torch_engine.tracing.given_text import GivenText
from workers.torch_engine.tracing.verdicts import ForcedChain, Texts, Verdicts

TRACED = ("one_hot", "rejection")
"""Verifiers whose verdicts follow from the answer."""

DECIDING = ("adaptive",)
"""Drafters that decide by costs and earlier acceptance."""


@dataclass(frozen=True)
class Trace:
    """One answer under one method; see GivenText."""

    kept: tuple[tuple[float, ...], ...]
    confidences: tuple[tuple[float, ...], ...]


class TracedMethod(Method):
    """A method whose verdicts follow from the answers. Raises ValueError for other verifiers."""

    def __init__(self, spec: MethodSpec, materials: Materials, texts: Texts) -> None:
        super().__init__(_alone(spec), materials)
        forced = None
        if spec.verifier == "rejection":
            forced = ForcedChain(texts)
            self.plan = replace(self.plan, tree=forced)
        self.verifier = Verdicts(texts, forced)


class Tracer:
    """Trace methods in the calling thread, `batch` answers together."""

    def __init__(
        self, methods: Sequence[MethodSpec], bundle: Bundle, config: EngineConfig, batch: int
    ) -> None:
        room = config.max_context
        wide = {
            "max_batch": batch,
            "kv_slots": batch * room,
            # else a drafter reads its prompts step by step, and drafts nothing until it has
            "prefill_chunk": batch * room,
        }
        models = load_models([], bundle, config.model_copy(update=wide))
        self.batch, self.capacity = batch, models.capacity
        self._texts: dict[int, GivenText] = {}
        self._target = GivenTarget(models.target, self._texts)
        self._tokenizer = bundle.backend_tokenizer()
        self._ends = end_tokens(bundle)
        model = models.target.model
        materials = Materials(
            bundle,
            model.device,
            model.dtype,
            batch,
            models.capacity,
            model.vocab,
            model,
            batch * room,
            DrafterGuard(model.vocab),
        )
        self._failures = materials.guard.failures
        self._methods = {spec.name: TracedMethod(spec, materials, self._texts) for spec in methods}
        self._drafters: list[Drafter] = materials.drafters
        self._past = materials.past
        self._captures = frozenset[int]().union(*(d.captures for d in self._drafters))

    @torch.inference_mode()
    def read(
        self, prompt: Sequence[int], answer: Sequence[int], sampling: SamplingParams
    ) -> GivenText:
        """Return a text for `trace`: the target reads it once for all methods. Raises ValueError
        for a text that exceeds the context."""
        if len(prompt) + len(answer) > self.capacity:
            raise ValueError(
                f"{len(prompt)} prompt and {len(answer)} answer tokens exceed the context of "
                f"{self.capacity}"
            )
        text = GivenText(tuple(prompt), tuple(answer), sampling, {}, [])
        self._target.read(text, self._captures)
        return text

    @torch.inference_mode()
    async def trace(self, method: str, texts: Sequence[GivenText]) -> list[Trace]:
        """Return the acceptance of a method's drafts at the texts' positions; at most `batch`
        texts."""
        running = [self._sequence(method, text, row) for row, text in enumerate(texts)]
        for sequence, text in zip(running, texts, strict=True):
            text.kept, text.confidences = [], []
            self._texts[sequence.id] = text
        try:
            while running:
                self._past.work()
                for error in step(running, self._target, self._methods):
                    raise error
                if self._failures.counts:
                    raise RuntimeError(f"{method}: its drafter failed: see the log")
                for sequence in running:
                    if sequence.output_tokens == len(self._texts[sequence.id].answer):
                        self._forget(sequence)
                running = [s for s in running if s.id in self._texts]
        finally:
            for sequence in running:
                self._forget(sequence)
        return [Trace(tuple(text.kept), tuple(text.confidences)) for text in texts]

    def _forget(self, sequence: DecodeSequence) -> None:
        del self._texts[sequence.id]
        for drafter in self._drafters:
            drafter.release(sequence)
        # others' traces are of the same answers: no drafter is to know one before it is asked
        if isinstance(self._methods[sequence.method].plan.drafter, Suffix):
            answer = sequence.tokens[sequence.prompt_tokens :]
            self._past.add(sequence.request.scope, answer)

    def _sequence(self, method: str, text: GivenText, row: int) -> DecodeSequence:
        request = DecodeRequest(
            request_id=f"{method}-{row}",
            method=method,
            prompt_token_ids=text.prompt,
            scope=method,
            # drafts are those of requests without a seed, which belong to no answer
            sampling=text.sampling.model_copy(update={"seed": None}),
        )
        sequence = DecodeSequence(
            request, Stream(request.request_id), tokenizer=self._tokenizer, eos=self._ends
        )
        sequence.rng = generator(text.sampling.seed)
        sequence.admit(Lease(row))
        return sequence


def _alone(spec: MethodSpec) -> MethodSpec:
    """Return the method as it drafts for one sequence. Raises ValueError for untraceable
    methods."""
    if spec.engine != "torch":
        raise ValueError(f"{spec.name}: only methods of our own engine are traced")
    if spec.verifier not in TRACED:
        known = " and ".join(TRACED)
        raise ValueError(
            f"{spec.name}: verifier {spec.verifier!r}: an answer tells what {known} keep"
        )
    if spec.drafter in DECIDING:
        raise ValueError(f"{spec.name}: it drafts what pays here and now: have it decode instead")
    gamma = schedule_of(spec).gamma(1)
    return spec.model_copy(
        update={"stop": "fixed", "settings": {**spec.settings, "stop": {"gamma": gamma}}}
    )
