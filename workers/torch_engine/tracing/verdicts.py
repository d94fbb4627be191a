"""Acceptance of drafts given a known answer: the tree and the verifier of a traced method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from workers.drafting.names import NOBODY
from workers.torch_engine.distribution import warp_each
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.parts import Proposal
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tracing.given_text import GivenText, favourites
from workers.torch_engine.tree import ROOT, Path

LEAST = 1e-3
"""Least acceptance at which a draft is followed further."""

Texts = Mapping[int, GivenText]
"""By sequence id."""


class ForcedChain:
    """A chain of the answer's own tokens, as drafts that are accepted with some probability.

    Rejection sampling emits x with p(x) and, where it does, has kept the draft x with
    min(p(x), q(x)) (Leviathan et al. 2023, arXiv 2211.17192): given the answer's next token x the
    draft is kept with min(1, q(x) / p(x)), and the drafter goes on behind x. At temperature 0 that
    is whether x is the favourite of both.
    """

    samples = False

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._kept: dict[int, list[float]] = {}
        self._confidences: dict[int, list[float]] = {}

    def expand(self, proposals: Sequence[Proposal], logits: DraftLogits) -> None:
        """Add the answer's next token to each proposal, and go on where it is ever kept."""
        whole = logits.whole()
        places = [p.sequence.output_tokens + len(p) for p in proposals]
        texts = [self._texts[p.sequence.id] for p in proposals]
        tokens = [
            text.answer[place] if place < len(text.answer) else text.answer[-1]
            for text, place in zip(texts, places, strict=True)
        ]
        shares = _shares(proposals, whole, tokens)
        for proposal, text, place, token, q, sure in zip(
            proposals, texts, places, tokens, shares, favourites(whole), strict=True
        ):
            known = self._kept.setdefault(proposal.sequence.id, [])
            self._confidences.setdefault(proposal.sequence.id, []).append(sure)
            proposal.frontier = []
            if place >= len(text.answer):
                continue
            share = min(1.0, q / text.p[place]) if text.p[place] > 0.0 else 0.0
            known.append((known[-1] if known else 1.0) * share)
            if known[-1] > LEAST:
                proposal.frontier = [proposal.add(token, len(proposal) - 1)]

    def finish(self, proposals: Sequence[Proposal]) -> None:
        """Keep all nodes."""

    def told(self, proposal: Proposal) -> tuple[list[float], list[float]]:
        """Return and forget the acceptance of a proposal's draft."""
        known = proposal.sequence.id
        return self._kept.pop(known, []), self._confidences.pop(known, [])


def _shares(proposals: Sequence[Proposal], logits: Tensor, tokens: list[int]) -> list[float]:
    """What each proposal's drafter gives its token: q at the request's temperature, and at 0
    whether it is the favourite."""
    at = torch.tensor(tokens, device=logits.device)
    shares = (logits.argmax(-1) == at).float()
    sampled = [i for i, p in enumerate(proposals) if p.sequence.sampling.temperature > 0.0]
    if sampled:
        q = warp_each(logits[sampled], [proposals[i].sequence.sampling for i in sampled])
        shares[sampled] = q.gather(1, at[sampled, None]).view(-1)
    values: list[float] = shares.tolist()
    return values


class Verdicts:
    """Emits the answer's next token and keeps no draft, so that the next step drafts one token
    further on; notes what the method's own verifier would have kept.

    Without `forced` the drafts are chosen tokens, of which those are kept that the answer says.
    """

    needs_distribution = False
    takes_trees = True
    takes_sampled = True

    def __init__(self, texts: Texts, forced: ForcedChain | None) -> None:
        self._texts, self._forced = texts, forced

    def verify(self, proposals: Sequence[Proposal], output: TargetOutput) -> list[Path]:  # noqa: ARG002
        """A path without nodes for each proposal, whose draft has no author: it was not verified,
        and who learns what comes of verified drafts must not take it for a wrong one."""
        drafting = [p for p in proposals if p.sequence.output_tokens]
        for proposal in proposals:
            proposal.drafter = NOBODY
        if self._forced is None:
            self._follow(drafting)
        else:
            for proposal in drafting:
                text = self._texts[proposal.sequence.id]
                kept, confidences = self._forced.told(proposal)
                text.kept.append(tuple(kept))
                text.confidences.append(tuple(confidences))
        return [
            Path((), self._texts[p.sequence.id].answer[p.sequence.output_tokens]) for p in proposals
        ]

    def _follow(self, proposals: Sequence[Proposal]) -> None:
        """Note how far the answer follows each tree."""
        rows, owners = list[Tensor](), list[int]()
        for index, proposal in enumerate(proposals):
            text = self._texts[proposal.sequence.id]
            kept, sure, seen = _walk(proposal, text)
            text.kept.append(kept)
            text.confidences.append(sure)
            rows += seen
            owners += [index] * len(seen)
        if not rows:
            return
        found: dict[int, list[float]] = {}
        for owner, favourite in zip(owners, favourites(torch.cat(rows)), strict=True):
            found.setdefault(owner, []).append(favourite)
        for owner, values in found.items():
            self._texts[proposals[owner].sequence.id].confidences[-1] = tuple(values)


def _walk(
    proposal: Proposal, text: GivenText
) -> tuple[tuple[float, ...], tuple[float, ...], list[Tensor]]:
    """1 for each level on which the answer's token is a node and 0 for the first that it is not;
    at those levels the probability that a drafter on the host gives its token, and the logits of
    one on the device."""
    at, place = ROOT, proposal.sequence.output_tokens
    kept, sure, rows = list[float](), list[float](), list[Tensor]()
    while children := proposal.children(at):
        first = children[0]
        if (row := proposal.logits[first]) is not None:
            rows.append(row.values)
        elif proposal.values[first]:
            before = proposal.values[at] if at != ROOT else 0.0
            sure.append(math.exp(proposal.values[first] - before))
        if place >= len(text.answer):
            break
        wanted, likely = text.answer[place], text.p[place] > 0.0
        at = next((c for c in children if proposal.tokens[c] == wanted and likely), len(proposal))
        kept.append(float(at < len(proposal)))
        if at == len(proposal):
            break
        place += 1
    return tuple(kept), tuple(sure), rows
