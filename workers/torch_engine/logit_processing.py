"""What requests ask of the target's logits before any verifier sees them: grammar, bias, penalties.

A tree node's distribution depends on its own ancestors, so each row is processed with the tokens
that lead to it. Lossless verifiers then stay lossless: they only ever see the processed p.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from schemas import DecodeRequest, SamplingParams
from workers.torch_engine.tree import ROOT, Proposal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers.torch_engine.constraint import Constraint
    from workers.torch_engine.parts import TargetOutput


class Processor:
    """One request's wishes, and what they count of its tokens so far."""

    def __init__(self, request: DecodeRequest, constraint: Constraint | None) -> None:
        sampling = request.sampling
        self.sampling = sampling
        self.penalises = _penalises(sampling)
        self._prompt = request.prompt_token_ids
        self._read = len(self._prompt)
        self._constraint = constraint
        self._advanced = len(self._prompt)
        self._counts: Tensor | None = None
        self._in_prompt: Tensor | None = None
        self._biased = torch.tensor(list(sampling.logit_bias), dtype=torch.long)
        self._bias = torch.tensor(list(sampling.logit_bias.values()), dtype=torch.float32)

    def forbid(self, proposal: Proposal, logits: Tensor) -> None:
        """Set the logits [n, vocab] of tokens that the grammar forbids to -inf, in place."""
        if self._constraint is None:
            return
        tokens = proposal.sequence.tokens
        self._constraint.advance(tokens[self._advanced :])
        self._advanced = len(tokens)
        allowed = torch.from_numpy(self._constraint.masks(proposal)).to(logits.device)
        logits.masked_fill_(~allowed, -torch.inf)

    def add_bias(self, logits: Tensor) -> None:
        """Add the request's bias to its rows [n, vocab], in place."""
        if len(self._biased):
            logits[:, self._biased.to(logits.device)] += self._bias.to(logits.device)

    def counts(self, tokens: Seq[int], like: Tensor) -> tuple[Tensor, Tensor]:
        """How often each token occurs in the output [vocab] float32, and whether in the prompt
        [vocab] bool; tokens: prompt and output so far, which has only grown since the last call."""
        if self._counts is None or self._in_prompt is None:
            self._counts = torch.zeros(like.shape[-1], device=like.device)
            self._in_prompt = torch.zeros_like(self._counts, dtype=torch.bool)
            self._in_prompt[list(self._prompt)] = True
        fresh = torch.tensor(tokens[self._read :], dtype=torch.long, device=like.device)
        self._counts.index_add_(0, fresh, torch.ones_like(fresh, dtype=torch.float32))
        self._read = len(tokens)
        return self._counts, self._in_prompt


@dataclass(frozen=True, slots=True)
class _Rows:
    """A proposal and its rows first .. last-1 of the logits being processed."""

    proposal: Proposal
    processor: Processor
    first: int
    last: int


def make_processor(
    request: DecodeRequest, constraint: Constraint | None = None
) -> Processor | None:
    """A request's processor, None where it takes the target's logits as they are.

    constraint: where the answer stands in the request's grammar, at its beginning.
    """
    sampling = request.sampling
    if constraint is None and not sampling.logit_bias and not _penalises(sampling):
        return None
    return Processor(request, constraint)


def process(proposals: Seq[Proposal], output: TargetOutput) -> TargetOutput:
    """The output with the rows of those sequences processed that ask for it; the very same object
    where none does. Order: grammar, bias, repetition, frequency and presence penalty."""
    asking = [
        (proposal, processor)
        for proposal in proposals
        if (processor := proposal.sequence.processor) is not None
    ]
    if not asking:
        return output
    picked = [p.row + i for p, _ in asking for i in range(len(p) + 1)]
    rows = torch.tensor(picked, device=output.logits.device)
    logits = output.logits[rows]
    members = list(_placed(asking))
    for member in members:
        own = logits[member.first : member.last]
        member.processor.forbid(member.proposal, own)
        member.processor.add_bias(own)
    _penalise([m for m in members if m.processor.penalises], logits)
    processed = output.logits.clone()
    processed[rows] = logits
    return replace(output, logits=processed, unprocessed=output.logits)


def _placed(asking: Seq[tuple[Proposal, Processor]]) -> Iterator[_Rows]:
    ends = accumulate(len(proposal) + 1 for proposal, _ in asking)
    for (proposal, processor), end in zip(asking, ends, strict=True):
        yield _Rows(proposal, processor, end - len(proposal) - 1, end)


def _penalise(members: Seq[_Rows], logits: Tensor) -> None:
    """Penalties of all members' rows at once, in place on logits [rows, vocab].

    Presence and frequency count the output and the drafted ancestors, repetition the prompt too.
    """
    if not members:
        return
    rows = torch.tensor([r for m in members for r in range(m.first, m.last)], device=logits.device)
    sizes = torch.tensor([m.last - m.first for m in members], device=logits.device)
    known = [m.processor.counts(m.proposal.sequence.tokens, logits) for m in members]
    counts = torch.stack([output for output, _ in known]).repeat_interleave(sizes, 0)
    in_prompt = torch.stack([prompt for _, prompt in known]).repeat_interleave(sizes, 0)
    _count_ancestors(members, counts)
    settings = [m.processor.sampling for m in members]
    wishes = [[s.repetition_penalty, s.frequency_penalty, s.presence_penalty] for s in settings]
    columns = torch.tensor(wishes, device=logits.device).repeat_interleave(sizes, 0)
    repetition, frequency, presence = columns[:, :, None].unbind(1)
    scores, present = logits[rows], counts > 0
    repeated = torch.where(scores > 0, scores / repetition, scores * repetition)
    scores = torch.where(present | in_prompt, repeated, scores)
    logits[rows] = scores - frequency * counts - presence * present


def _count_ancestors(members: Seq[_Rows], counts: Tensor) -> None:
    """Add to each node's row of counts [rows, vocab] the drafted tokens that lead to it."""
    at, tokens, first = list[int](), list[int](), 0
    for member in members:
        proposal = member.proposal
        for node in range(len(proposal)):
            ancestor = node
            while ancestor != ROOT:
                at.append(first + 1 + node)
                tokens.append(proposal.tokens[ancestor])
                ancestor = proposal.parents[ancestor]
        first += len(proposal) + 1
    places = (
        torch.tensor(at, dtype=torch.long, device=counts.device),
        torch.tensor(tokens, dtype=torch.long, device=counts.device),
    )
    counts.index_put_(places, torch.ones(len(at), device=counts.device), accumulate=True)


def _penalises(sampling: SamplingParams) -> bool:
    return (
        sampling.repetition_penalty != 1.0
        or sampling.frequency_penalty != 0.0
        or sampling.presence_penalty != 0.0
    )
