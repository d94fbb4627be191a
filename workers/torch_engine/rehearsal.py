"""Drafts before serving, from which the adaptive method learns what drafting costs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from schemas import DecodeRequest, SamplingParams
from workers.drafting.step_costs import CATCH_UP, Draft
from workers.stream import Stream
from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.drafters.adaptive import Adaptive
from workers.torch_engine.drafters.learned import Learned
from workers.torch_engine.interfaces import Proposal
from workers.torch_engine.method import Method
from workers.torch_engine.models import static_steps
from workers.torch_engine.models.static_steps import RECURRING
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.stops import Fixed
from workers.torch_engine.target import Target
from workers.torch_engine.tree import Path

BATCH, LEVELS = 8, (1, 3)
"""Most sequences of a rehearsed batch, and rehearsed levels."""
COUNTED, UNCOUNTED = 2, 1
"""Drafts of each size that are timed, and that come first and only allocate memory."""
UNCOUNTED_STATIC = 2 * RECURRING
"""Untimed drafts where recurring shapes are captured as graphs. Steps in between verify drafts
of two sizes, and both are captured by then."""
SHORT, LONG = 8, 64
"""Tokens of a prompt that is read with the first draft token, and of one that is read first."""


def rehearse(target: Target, methods: Iterable[Method], context: BuildContext, rows: int) -> None:
    """Let every learned drafter of an adaptive method draft in batches of up to `rows`
    sequences."""
    deciding = [m.plan.drafter for m in methods if isinstance(m.plan.drafter, Adaptive)]
    by_name = {name: one for drafter in deciding for name, one in drafter.learned.items()}
    rehearsal = _Rehearsal(target, context, rows)
    for one in by_name.values():
        if one.ready:
            rehearsal.of(one)


class _Rehearsal:
    """Draft for one sequence and for batches, few and several levels, after short and long
    prompts.

    The steps verify no draft, or the first sequence's. Acceptance is not learned: the texts mean
    nothing.
    """

    def __init__(self, target: Target, context: BuildContext, rows: int) -> None:
        self._target, self._context = target, context
        self._tokenizer = context.bundle.backend_tokenizer()
        static = context.device.type in static_steps.DEVICES
        self._uncounted = UNCOUNTED_STATIC if static else UNCOUNTED
        self._batches = sorted({1, min(BATCH, rows)})

    def of(self, one: Learned) -> None:
        """Learn the seconds of a drafter, and of steps of several sequences."""
        drafts = list[tuple[Draft, float]]()
        for count in self._batches:
            sequences = self._begun(one, count, SHORT)
            for levels in LEVELS:
                for i in range(self._uncounted):
                    self._step(one, sequences, levels, kept=i % 2, counted=False)
                taken = [self._step(one, sequences, levels, kept=i % 2) for i in range(COUNTED)]
                drafts.append((Draft(levels, count), min(taken)))
            self._end(sequences)
        long = min(LONG, self._context.capacity // 2)
        for count in self._batches if long >= CATCH_UP else ():
            late = Draft(1, count, late=count, missing=count * long)
            for counted in [*[False] * (self._uncounted - 1), True]:
                sequences = self._begun(one, count, long)
                seconds = self._step(one, sequences, 1, counted=counted)
                self._end(sequences)
            drafts.append((late, seconds))
        for draft, seconds in drafts:
            self._target.costs.saw_drafting(one.name, draft, seconds)

    def _begun(self, one: Learned, count: int, prompt: int) -> list[DecodeSequence]:
        """Return sequences whose prompts were read."""
        request = DecodeRequest(
            request_id="rehearsal",
            method=one.name,
            prompt_token_ids=tuple(i % self._context.vocab for i in range(prompt)),
            sampling=SamplingParams(ignore_eos=True),
        )
        sequences = [
            DecodeSequence(request, _Unheard(), tokenizer=self._tokenizer, eos=frozenset())
            for _ in range(count)
        ]
        for sequence in sequences:
            sequence.admit(self._target.pool.acquire())
        plan = one.plan(count)
        self._verify([Proposal(sequence=s, plan=plan, limit=0) for s in sequences])
        return sequences

    def _step(
        self,
        one: Learned,
        sequences: Sequence[DecodeSequence],
        levels: int,
        kept: int = 0,
        *,
        counted: bool = True,
    ) -> float:
        """Draft so many levels and return the seconds. kept: sequences whose drafts are
        verified. counted: learn from that step's seconds."""
        plan = replace(one.plan(len(sequences)), stop=Fixed(self._context, gamma=levels))
        proposals = [Proposal(sequence=s, plan=plan, limit=levels) for s in sequences]
        clock = time.perf_counter()
        plan.drafter.propose(proposals)
        drafted = time.perf_counter()
        for proposal in proposals[kept:]:
            proposal.keep([])
        self._verify(proposals)
        widths = [1 + len(proposal) for proposal in proposals]
        context = sum(len(sequence.tokens) for sequence in sequences)
        if counted:
            self._target.costs.step.saw(widths, context, time.perf_counter() - drafted)
        return drafted - clock

    def _verify(self, proposals: Sequence[Proposal]) -> None:
        """Move every sequence on by one token."""
        drafter = proposals[0].plan.drafter
        output = self._target.forward(proposals, drafter.captures)
        for proposal in proposals:
            path = Path((), output.best[proposal.row])
            self._target.commit(proposal, path, output)
            drafter.commit(proposal, path, output)
            proposal.sequence.tokens.append(path.bonus)

    def _end(self, sequences: Sequence[DecodeSequence]) -> None:
        for sequence in sequences:
            self._target.pool.release(sequence.lease)
            for drafter in self._context.drafters:
                drafter.release(sequence)
            sequence.leave()


class _Unheard(Stream):
    """The stream of a response that is not read."""

    def __init__(self) -> None:
        self.cancelled = False
