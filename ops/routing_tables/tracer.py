"""Accepted draft tokens of several methods at every position of the target's own responses."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as Folder

import torch
from rich.progress import Progress
from torch import Tensor

from ops.common.decoding import EncodedPrompt, request_of
from ops.common.settings import Setup
from ops.routing_tables.bounds import TracedAnswer, prepare
from router.fit.profile import ProfileMeta
from router.fit.speedup import BASELINE
from schemas import EngineConfig, MethodSpec, SamplingParams
from workers.bundle import Bundle, load_bundle
from workers.drafting.controller import NOBODY
from workers.end_tokens import end_tokens
from workers.stream import Stream
from workers.torch_engine.drafters.adaptive import Suffix
from workers.torch_engine.engine import load_models
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.models.kv_pool import Lease
from workers.torch_engine.models.layout import Span
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.step import step
from workers.torch_engine.target import Target
from workers.torch_engine.tree import Path

BATCH = 16
"""Answers that are decoded and traced together."""
DECIDING = ("adaptive",)
"""Drafters that decide by costs and by earlier acceptance, which tracing does not give them."""


@dataclass(slots=True)
class GivenText:
    """A prompt with the target's response.

    states: the target's hidden states of all its tokens, by capture [tokens, hidden]. accepted:
    the draft tokens accepted at each position, from the response's second token on.
    """

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    states: dict[int, Tensor]
    accepted: list[int] = field(default_factory=list)


Texts = Mapping[int, GivenText]
"""By sequence id."""


class GivenTarget(Target):
    """Return the states of given texts instead of computing them; drafts are not read."""

    def __init__(self, target: Target, texts: Texts) -> None:
        super().__init__(target.model, target.pool)
        self._texts = texts

    def forward(
        self, proposals: Sequence[Proposal], captures: Collection[int] = ()
    ) -> TargetOutput:
        """Return the states of pending tokens, and no logits."""
        output = TargetOutput(torch.empty(len(proposals), 0), {}, starts={}, pending={})
        parts: dict[int, list[Tensor]] = {capture: [] for capture in captures}
        start = 0
        for proposal in proposals:
            sequence = proposal.sequence
            length, end = sequence.lease.length, len(sequence.tokens)
            output.starts[sequence.id], output.pending[sequence.id] = start, end - length
            start += end - length
            for capture, rows in parts.items():
                rows.append(self._texts[sequence.id].states[capture][length:end])
        output.hidden = {capture: torch.cat(rows) for capture, rows in parts.items()}
        return output

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:  # noqa: ARG002
        """Count the pending tokens as read."""
        proposal.sequence.lease.length += output.pending[proposal.sequence.id]


class OneByOne:
    """A verifier that emits the response's next token alone, so that every position is drafted at.

    It notes how many draft tokens the method's own verifier would accept: at temperature 0 those
    that the response goes on with.
    """

    needs_distribution = False
    takes_trees = True
    takes_sampled = True

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    def verify(self, proposals: Sequence[Proposal], output: TargetOutput) -> list[Path]:  # noqa: ARG002
        """Return a path without nodes for each proposal."""
        paths = []
        for proposal in proposals:
            text, at = self._texts[proposal.sequence.id], proposal.sequence.output_tokens
            if at:
                text.accepted.append(len(proposal.follow(text.answer[at:])))
            # drafts without an author do not count as rejected ones
            proposal.drafter = NOBODY
            paths.append(Path((), text.answer[at]))
        return paths


class Tracer:
    """Decode plainly, then trace methods over the responses: at temperature 0, in this thread,
    inside a running event loop.

    methods: those to trace, and `plain`, which decodes. max_tokens: of a response. Raises
    ValueError for a method that cannot be traced.
    """

    def __init__(
        self,
        methods: Sequence[MethodSpec],
        plain: str,
        bundle: Bundle,
        config: EngineConfig,
        max_tokens: int,
    ) -> None:
        torch.set_num_threads(config.threads)
        slots = config.max_batch * config.max_context
        # prompts are read whole: a drafter that is still reading drafts nothing
        wide = config.model_copy(update={"kv_slots": slots, "prefix_cache": False})
        for spec in methods:
            _refuse_untraceable(spec)
        self.models = load_models(methods, bundle, wide, slots)
        self._plain, self._batch, self._max_tokens = plain, config.max_batch, max_tokens
        self._texts: dict[int, GivenText] = {}
        self._target = GivenTarget(self.models.target, self._texts)
        self._plain_verifier = self.models.methods[plain].verifier
        self._one_by_one = OneByOne(self._texts)
        self._tokenizer, self._ends = bundle.backend_tokenizer(), end_tokens(bundle)
        self._captures = frozenset[int]().union(*(d.captures for d in self.models.context.drafters))

    @torch.inference_mode()
    async def texts(self, prompts: Sequence[tuple[int, ...]]) -> list[GivenText]:
        """Answer prompts together; one forward more reads each response for all drafters."""
        self.models.methods[self._plain].verifier = self._plain_verifier
        sequences = [self._sequence(self._plain, prompt) for prompt in prompts]
        for sequence in sequences:
            self.models.scheduler.submit(sequence)
        while any(sequence.finished is None for sequence in sequences):
            self.models.scheduler.round()
        answers = [tuple(s.tokens[s.prompt_tokens :]) for s in sequences]
        return [self.read(*pair) for pair in zip(prompts, answers, strict=True)]

    @torch.inference_mode()
    def read(self, prompt: tuple[int, ...], answer: tuple[int, ...]) -> GivenText:
        """Compute the states of a prompt and its response."""
        pool, model = self.models.target.pool, self.models.target.model
        lease = pool.acquire()
        span = Span(lease, [*prompt, *answer[:-1]], logits_from=len(prompt) + len(answer) - 2)
        _, states = model.forward(model.lay_out([span], pool), pool, self._captures)
        pool.release(lease)
        return GivenText(prompt, answer, states)

    @torch.inference_mode()
    async def trace(self, method: str, texts: Sequence[GivenText]) -> list[tuple[int, ...]]:
        """Return the accepted draft tokens [answer tokens - 1] of each text; at most `max_batch`
        texts."""
        self.models.methods[method].verifier = self._one_by_one
        running = []
        for row, text in enumerate(texts):
            sequence = self._sequence(method, text.prompt)
            sequence.admit(Lease(row))
            self._texts[sequence.id] = GivenText(text.prompt, text.answer, text.states)
            running.append(sequence)
        traced = [self._texts[sequence.id].accepted for sequence in running]
        while running:
            self.models.context.past.work()
            for error in step(running, self._target, self.models.methods):
                raise error
            if self.models.context.guard.failures.counts:
                raise RuntimeError(f"{method}: its drafter failed: see the log")
            for sequence in running:
                if sequence.output_tokens == len(self._texts[sequence.id].answer):
                    self._forget(sequence)
            running = [s for s in running if s.id in self._texts]
        return [tuple(accepted) for accepted in traced]

    def _forget(self, sequence: DecodeSequence) -> None:
        del self._texts[sequence.id]
        for drafter in self.models.context.drafters:
            drafter.release(sequence)
        # other methods trace the same answers: a drafter must not know one before it is asked
        if isinstance(self.models.methods[sequence.method].plan.drafter, Suffix):
            answer = sequence.tokens[sequence.prompt_tokens :]
            self.models.context.past.add(sequence.request.scope, answer)

    def _sequence(self, method: str, prompt: tuple[int, ...]) -> DecodeSequence:
        sampling = SamplingParams(temperature=0.0, max_tokens=self._max_tokens)
        request = request_of("trace", method, prompt, sampling, scope=method)
        stream = Stream(request.request_id)
        return DecodeSequence(request, stream, tokenizer=self._tokenizer, eos=self._ends)


def _refuse_untraceable(spec: MethodSpec) -> None:
    """Raise ValueError for a method that cannot be traced."""
    if spec.engine != "torch":
        raise ValueError(f"{spec.name}: only methods of the torch engine can be traced")
    if not spec.lossless:
        raise ValueError(f"{spec.name}: a plain answer does not tell what a lossy method accepts")
    if spec.drafter in DECIDING:
        raise ValueError(f"{spec.name}: it drafts by measured costs; use `bench decode` instead")


async def trace_all(
    setup: Setup, meta: ProfileMeta, items: Sequence[EncodedPrompt], out: Folder, bar: Progress
) -> None:
    """Trace the prompts that the folder lacks. Raises InputError if it has other settings."""
    done = prepare(out, meta)
    todo = [item for item in items if item.prompt.id not in done]
    if not todo:
        return
    todo.sort(key=lambda item: len(item.token_ids))
    engine = setup.engine.model_copy(update={"max_batch": BATCH})
    tracer = Tracer(setup.methods, BASELINE, load_bundle(setup.bundle), engine, meta.max_tokens)
    task = bar.add_task("prompts", total=len(todo))
    with (out / "trace.jsonl").open("a", encoding="utf-8") as file:
        for start in range(0, len(todo), BATCH):
            batch = todo[start : start + BATCH]
            texts = await tracer.texts([item.token_ids for item in batch])
            found = {n: await tracer.trace(n, texts) for n in setup.names if n != BASELINE}
            for at, (item, text) in enumerate(zip(batch, texts, strict=True)):
                row = TracedAnswer(
                    prompt_id=item.prompt.id,
                    domain=item.prompt.domain,
                    prompt=item.token_ids,
                    answer=text.answer,
                    accepted={name: accepted[at] for name, accepted in found.items()},
                )
                file.write(row.model_dump_json() + "\n")
            file.flush()
            bar.advance(task, len(batch))
