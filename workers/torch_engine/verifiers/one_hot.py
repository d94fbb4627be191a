"""Rejection of tokens that were chosen, not drawn: look-ups, argmaxes, top-k children."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from workers.torch_engine.distribution import uniforms
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.models.transfer import indices
from workers.torch_engine.registry import register
from workers.torch_engine.tree import Path
from workers.torch_engine.verifiers.target_choice import LosslessVerifier, Node, descend, draw_bonus


@register("verifier", "one_hot")
class OneHot(LosslessVerifier):
    """Accept x with p(x); on rejection take it out of p, renormalise and try the next sibling;
    when all fail emit from what is left of p.

    Any tree of chosen nodes with different tokens under one parent. At temperature 0: greedy
    matching.
    """

    takes_sampled = False

    def _sample(self, proposals: list[Proposal], output: TargetOutput) -> dict[int, Path]:
        walks = {p.sequence.id: _Walk(uniforms(len(p), p.sequence.rng)) for p in proposals}

        def below(proposal: Proposal, node: int, chances: list[float]) -> int | None:
            return walks[proposal.sequence.id].child(proposal, node, chances)

        paths = dict[int, Path]()
        for ended, p in descend(proposals, output, _of_children, below):
            refusals = [
                (row, token)
                for row, one in enumerate(ended)
                for token in walks[one.proposal.sequence.id].refused
            ]
            weights = p
            if refusals:
                weights = p.clone()
                weights[[row for row, _ in refusals], [token for _, token in refusals]] = 0.0
            bonus = draw_bonus(weights, p, [one.proposal for one in ended])
            for one, token in zip(ended, bonus, strict=True):
                paths[one.proposal.sequence.id] = Path(tuple(one.kept), token)
        return paths


def _of_children(p: Tensor, nodes: Sequence[Node]) -> list[list[float]]:
    """Return p of the children's tokens at each node."""
    children = [proposal.children(node) for proposal, node in nodes]
    rows = [row for row, found in enumerate(children) for _ in found]
    if not rows:
        return [[] for _ in nodes]
    tokens = [
        proposal.tokens[child]
        for (proposal, _), found in zip(nodes, children, strict=True)
        for child in found
    ]
    values = iter(p[indices(rows, p.device), indices(tokens, p.device)].tolist())
    return [[next(values) for _ in found] for found in children]


@dataclass(slots=True)
class _Walk:
    """One tree's descent, with a uniform for each node and the tokens refused at the present
    one."""

    draws: list[float]
    refused: list[int] = field(default_factory=list)

    def child(self, proposal: Proposal, node: int, chances: list[float]) -> int | None:
        """Return the first accepted child, each tested against the mass that the refused ones
        left."""
        left, self.refused = 1.0, []
        for child, chance in zip(proposal.children(node), chances, strict=True):
            if self.draws[child] * left < chance:
                return child
            left -= chance
            self.refused.append(proposal.tokens[child])
        return None
