"""Multi-step speculative sampling on trees (SpecInfer, arXiv 2305.09781; without replacement as in
Sequoia, arXiv 2402.12374)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from workers.torch_engine.distribution import uniforms
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.tree import ROOT, Path
from workers.torch_engine.verifiers.target_choice import LosslessVerifier, draw_bonus, warped_rows


@register("verifier", "multi_step")
class MultiStep(LosslessVerifier):
    """Try the children in their order: accept x with min(1, p(x) / q(x)), on rejection
    p := norm(max(p - q, 0)); when all have failed emit from p.

    Each node's q is what it was drawn from given its elder siblings: q itself with replacement
    or from another drafter, without replacement q less the elder ones, renormalised. A chosen
    node counts with a one-hot q. At temperature 0: greedy matching.
    """

    def _sample(self, proposals: list[Proposal], output: TargetOutput) -> dict[int, Path]:
        p, starts = warped_rows(proposals, output)
        chances, residual = _try_all(proposals, p, starts)
        kept, ends = list[tuple[int, ...]](), list[int]()
        for proposal, start in zip(proposals, starts, strict=True):
            path = _walk(proposal, chances[proposal.sequence.id])
            kept.append(path)
            ends.append(start + 1 + (path[-1] if path else ROOT))
        bonus = draw_bonus(residual[ends], p[ends], proposals)
        return {
            proposal.sequence.id: Path(path, token)
            for proposal, path, token in zip(proposals, kept, bonus, strict=True)
        }


def _try_all(
    proposals: list[Proposal], p: Tensor, starts: list[int]
) -> tuple[dict[int, list[float]], Tensor]:
    """Return each node's acceptance probability after its elder siblings are rejected, by
    sequence id, and what is left of p [rows, vocab] at nodes whose children are all rejected.

    All parents' eldest children together, then their second ones: as many rounds as the largest
    family has children, whatever the number of trees.
    """
    ranked = [_ranks(proposal) for proposal in proposals]
    left, chances = p.clone(), [[0.0] * len(proposal) for proposal in proposals]
    for rank in range(max((max(own, default=-1) for own in ranked), default=-1) + 1):
        members = [
            (index, node)
            for index, own in enumerate(ranked)
            for node, elders in enumerate(own)
            if elders == rank
        ]
        rows, at, q = families(proposals, members, p, starts)
        own = left[rows]
        ratios = (own.gather(1, at) / q.gather(1, at)).view(-1).tolist()
        for (index, node), ratio in zip(members, ratios, strict=True):
            chances[index][node] = ratio
        own = (own - q).clamp_(min=0.0)
        left[rows] = own / own.sum(-1, keepdim=True).clamp_(min=torch.finfo(own.dtype).tiny)
    return {p.sequence.id: c for p, c in zip(proposals, chances, strict=True)}, left


def families(
    proposals: list[Proposal], members: Sequence[tuple[int, int]], p: Tensor, starts: list[int]
) -> tuple[list[int], Tensor, Tensor]:
    """Return for each node (index of its proposal, node) its parent's row of p, its token [n, 1]
    and the distribution [n, vocab] that it was drawn from, one-hot for a chosen node."""
    rows = [starts[index] + 1 + proposals[index].parents[node] for index, node in members]
    tokens = torch.tensor([proposals[i].tokens[node] for i, node in members], device=p.device)
    q = torch.stack([_drawn_from(proposals[i], node, p) for i, node in members])
    return rows, tokens[:, None], q


def _ranks(proposal: Proposal) -> list[int]:
    """Return how many siblings precede each node."""
    born: dict[int, int] = {}
    elders = []
    for parent in proposal.parents:
        elders.append(born.get(parent, 0))
        born[parent] = elders[-1] + 1
    return elders


def _drawn_from(proposal: Proposal, node: int, p: Tensor) -> Tensor:
    q = proposal.q[node]
    if q is not None:
        return q
    token = torch.tensor(proposal.tokens[node], device=p.device)
    return torch.nn.functional.one_hot(token, p.shape[-1]).to(p.dtype)


def _walk(proposal: Proposal, chances: list[float]) -> tuple[int, ...]:
    """Return the accepted nodes."""
    draws = uniforms(len(proposal), proposal.sequence.rng)
    node, kept = ROOT, list[int]()
    while True:
        accepted = next((c for c in proposal.children(node) if draws[c] < chances[c]), None)
        if accepted is None:
            return tuple(kept)
        kept.append(accepted)
        node = accepted
