"""Speculative sampling on chains (Leviathan et al. 2023, arXiv 2211.17192) and in multiple steps on
trees (SpecInfer, arXiv 2305.09781; without replacement as in Sequoia, arXiv 2402.12374)."""

import torch
from torch import Tensor

from workers.torch_engine.distribution import uniforms
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.tree import ROOT, Path
from workers.torch_engine.verifiers.target_choice import LosslessVerifier, ended, warped_rows


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
        return ended(proposals, _try_all(proposals, p, starts), p, starts)


@register("verifier", "rejection")
class Rejection(MultiStep):
    """Try the tokens of a chain, where a node has one child: at the first rejection emit from
    norm(max(p - q, 0)), after full acceptance from p."""

    takes_trees = False


def _try_all(proposals: list[Proposal], p: Tensor, starts: list[int]) -> list[tuple[int, ...]]:
    """Return each proposal's accepted nodes, and take what was rejected out of p [rows, vocab].

    All parents' eldest children together, then the second ones of those that rejected the first:
    as many rounds as the largest family has children, whatever the number of trees.
    """
    accepted = [dict[int, int]() for _ in proposals]
    draws = [uniforms(len(proposal), proposal.sequence.rng) for proposal in proposals]
    ranked = [_ranks(proposal) for proposal in proposals]
    for rank in range(max((max(own, default=-1) for own in ranked), default=-1) + 1):
        members = [
            (index, node, parent)
            for index, proposal in enumerate(proposals)
            for node, parent in enumerate(proposal.parents)
            if ranked[index][node] == rank and parent not in accepted[index]
        ]
        if not members:
            break
        rows = [starts[index] + 1 + parent for index, _, parent in members]
        tokens = torch.tensor([proposals[i].tokens[n] for i, n, _ in members], device=p.device)
        own, q = p[rows], torch.stack([_drawn_from(proposals[i], n, p) for i, n, _ in members])
        at, rejected = tokens[:, None], list[int]()
        ratios = (own.gather(1, at) / q.gather(1, at)).view(-1).tolist()
        for member, (index, node, parent) in enumerate(members):
            if draws[index][node] < ratios[member]:
                accepted[index][parent] = node
            else:
                rejected.append(member)
        left = (own[rejected] - q[rejected]).clamp_(min=0.0)
        mass = left.sum(-1, keepdim=True)
        # no mass takes rounding: a rejected token has p < q, so some other has p > q
        p[[rows[member] for member in rejected]] = torch.where(
            mass > 0.0, left / mass, own[rejected]
        )
    return [_path(children) for children in accepted]


def _ranks(proposal: Proposal) -> list[int]:
    """Return how many siblings precede each node."""
    born: dict[int, int] = {}
    elders = []
    for parent in proposal.parents:
        elders.append(born.get(parent, 0))
        born[parent] = elders[-1] + 1
    return elders


def _drawn_from(proposal: Proposal, node: int, p: Tensor) -> Tensor:
    """Return the distribution [vocab] that a node was drawn from, one-hot for a chosen one."""
    q = proposal.q[node]
    if q is not None:
        return q
    token = torch.tensor(proposal.tokens[node], device=p.device)
    return torch.nn.functional.one_hot(token, p.shape[-1]).to(p.dtype)


def _path(children: dict[int, int]) -> tuple[int, ...]:
    """Return the nodes from the root down. children: the accepted child of each node."""
    node, kept = ROOT, list[int]()
    while node in children:
        node = children[node]
        kept.append(node)
    return tuple(kept)
