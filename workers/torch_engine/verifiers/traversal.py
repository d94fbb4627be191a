"""Traversal verification of sampled trees (Weng et al. 2025, arXiv 2505.12398)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from workers.torch_engine.distribution import uniforms
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.tree import ROOT, Path
from workers.torch_engine.verifiers.multi_step import families, ranks
from workers.torch_engine.verifiers.target_choice import LosslessVerifier, draw_bonus, warped_rows


@register("verifier", "traversal")
class Traversal(LosslessVerifier):
    """Try the nodes of a tree from its leaves to its root; an accepted node accepts its path.

    A child x of a node with weight w begins with weight min(1, w p(x) / q(x)); the root has 1.
    After all nodes under x and x itself are rejected, the excess max(w p - q, 0) of mass s, taken
    renormalised, becomes the node's p, and s / (s + 1 - w) its weight. A node whose children are
    all rejected is accepted with its weight, and the next token comes from its p.

    q is as in `multi_step`, which accepts no more tokens in expectation (enumerated, not proven).
    On a chain this is block verification (Sun et al. 2024, arXiv 2403.10444), which accepts at
    least as many tokens as `rejection`. At temperature 0: greedy matching.
    """

    def _sample(self, proposals: list[Proposal], output: TargetOutput) -> dict[int, Path]:
        p, starts = warped_rows(proposals, output)
        weights, left = weigh(proposals, p, starts)
        chances, kept, ends = weights.tolist(), list[tuple[int, ...]](), list[int]()
        for proposal, start in zip(proposals, starts, strict=True):
            draws = uniforms(len(proposal), proposal.sequence.rng)
            own = chances[start + 1 :]
            last = next((n for n in leaves_first(proposal) if draws[n] < own[n]), ROOT)
            kept.append(proposal.path_to(last))
            ends.append(start + 1 + last)
        bonus = draw_bonus(left[ends], p[ends], proposals)
        return {
            proposal.sequence.id: Path(path, token)
            for proposal, path, token in zip(proposals, kept, bonus, strict=True)
        }


def weigh(proposals: list[Proposal], p: Tensor, starts: list[int]) -> tuple[Tensor, Tensor]:
    """Return each row's weight [rows] and what is left of its p [rows, vocab] once all nodes under
    it are rejected.

    p: [rows, vocab], of each proposal the root's row, at `starts`, and its nodes'. The trees'
    eldest children of one depth are computed together, then their siblings, then the next depth.
    """
    left, weights, tiny = p.clone(), torch.ones_like(p[:, 0]), torch.finfo(p.dtype).tiny
    for members in _rounds(proposals):
        rows = [starts[index] + 1 + node for index, node in members]
        parents, at, q = families(proposals, members, p, starts)
        own, weight = left[parents] * weights[parents, None], weights[parents]
        ratios = own.gather(1, at) / q.gather(1, at).clamp_(min=tiny)
        weights[rows] = ratios.view(-1).clamp_(max=1.0)
        excess = (own - q).clamp_(min=0.0)
        mass = excess.sum(-1)
        weights[parents] = mass / (mass + (1.0 - weight)).clamp_(min=tiny)
        left[parents] = excess / mass[:, None].clamp_(min=tiny)
    return weights, left


def _rounds(proposals: list[Proposal]) -> list[list[tuple[int, int]]]:
    """Return the nodes in the order of their depths, then of their ranks among their siblings."""
    rounds = dict[tuple[int, int], list[tuple[int, int]]]()
    for index, proposal in enumerate(proposals):
        for node, place in enumerate(zip(proposal.depths, ranks(proposal), strict=True)):
            rounds.setdefault(place, []).append((index, node))
    return [rounds[place] for place in sorted(rounds)]


def leaves_first(proposal: Proposal, node: int = ROOT) -> Iterator[int]:
    """Yield all nodes under `node`, each after the nodes under it and its elder siblings."""
    for child in proposal.children(node):
        yield from leaves_first(proposal, child)
        yield child
