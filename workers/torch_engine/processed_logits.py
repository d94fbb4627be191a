"""The target's logits after each request's processing, as verifiers see them.

A tree node's distribution depends on its own ancestors, so each row is processed with the tokens
that lead to it. Lossless verifiers then stay lossless: they only ever see the processed p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from workers.engine import RequestFaultError
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.logit_processor import LogitProcessor
from workers.torch_engine.tree import ROOT


@dataclass(frozen=True, slots=True)
class _Rows:
    """A proposal and its rows first .. last-1 of the logits being processed."""

    proposal: Proposal
    processor: LogitProcessor
    first: int
    last: int


def process(proposals: Sequence[Proposal], output: TargetOutput) -> TargetOutput:
    """Return the output with each request's processing applied; the same object where none asks
    for any. Order: grammar and least tokens, bias, repetition, frequency and presence penalty.

    Nodes that this leaves without a token that can be chosen are dead. Raises RequestFaultError
    where it leaves a root so.
    """
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
    ends = accumulate(len(proposal) + 1 for proposal, _ in asking)
    members = [
        _Rows(proposal, processor, end - len(proposal) - 1, end)
        for (proposal, processor), end in zip(asking, ends, strict=True)
    ]
    for member in members:
        own = logits[member.first : member.last]
        member.processor.forbid(member.proposal, member.proposal.sequence.tokens, own)
        member.processor.add_bias(own)
    _penalise([m for m in members if m.processor.penalises], logits)
    choosable: list[bool] = logits.amax(-1).isfinite().tolist()
    dead = frozenset(row for row, able in zip(picked, choosable, strict=True) if not able)
    if not dead.isdisjoint(proposal.row for proposal, _ in asking):
        raise RequestFaultError(
            "no token can be chosen after the request's own changes to the logits: leave out "
            "repetition_penalty, logit_bias, frequency_penalty, presence_penalty and min_tokens, "
            "or set them nearer to their defaults"
        )
    processed = output.logits.clone()
    processed[rows] = logits
    return replace(output, logits=processed, unprocessed=output.logits, dead=output.dead | dead)


def _penalise(members: Sequence[_Rows], logits: Tensor) -> None:
    """Apply the penalties of all members' rows, in place on logits [rows, vocab].

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
    penalties = [[s.repetition_penalty, s.frequency_penalty, s.presence_penalty] for s in settings]
    columns = torch.tensor(penalties, device=logits.device).repeat_interleave(sizes, 0)
    repetition, frequency, presence = columns[:, :, None].unbind(1)
    scores, present = logits[rows], counts > 0
    repeated = torch.where(scores > 0, scores / repetition, scores * repetition)
    scores = torch.where(present | in_prompt, repeated, scores)
    logits[rows] = scores - frequency * counts - presence * present


def _count_ancestors(members: Sequence[_Rows], counts: Tensor) -> None:
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
