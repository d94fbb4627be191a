"""Rejection of tokens that were chosen, not drawn: look-ups, argmaxes, top-k children."""

from collections.abc import Sequence

from torch import Tensor

from workers.torch_engine.distribution import uniforms
from workers.torch_engine.materials import Materials
from workers.torch_engine.parts import Proposal
from workers.torch_engine.registry import register
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tree import ROOT, Path
from workers.torch_engine.verifiers.target_choice import draw_bonus, split_chosen, warped_rows


@register("verifier", "one_hot")
class OneHot:
    """Accept x with p(x); on rejection take it out of p, renormalise and try the next sibling;
    when all fail emit from what is left of p.

    Any tree of chosen nodes with different tokens under one parent. At temperature 0: greedy
    matching.
    """

    needs_distribution = False
    takes_trees = True
    takes_sampled = False

    def __init__(self, _materials: Materials) -> None: ...

    def verify(self, proposals: Sequence[Proposal], output: TargetOutput) -> list[Path]:
        """One path per proposal; raises ValueError for nodes sampled above temperature 0."""
        paths, sampled = split_chosen(proposals, output)
        if any(any(proposal.sampled) for proposal in sampled):
            raise ValueError("verifier 'one_hot' takes chosen tokens only; these were sampled")
        if sampled:
            paths |= self._sample(sampled, output)
        return [paths[proposal.sequence.id] for proposal in proposals]

    def _sample(self, proposals: list[Proposal], output: TargetOutput) -> dict[int, Path]:
        p, starts = warped_rows(proposals, output)
        ends, refusals, kept = list[int](), list[tuple[int, int]](), list[tuple[int, ...]]()
        for index, (proposal, start) in enumerate(zip(proposals, starts, strict=True)):
            path, refused = _walk(proposal, _at_parents(proposal, p, start))
            kept.append(path)
            ends.append(start + 1 + (path[-1] if path else ROOT))
            refusals.extend((index, token) for token in refused)
        last = p[ends]
        weights = last.clone()
        if refusals:
            weights[[row for row, _ in refusals], [token for _, token in refusals]] = 0.0
        bonus = draw_bonus(weights, last, proposals)
        return {
            proposal.sequence.id: Path(path, token)
            for proposal, path, token in zip(proposals, kept, bonus, strict=True)
        }


def _at_parents(proposal: Proposal, p: Tensor, start: int) -> list[float]:
    """p of each node's token at its parent."""
    if not len(proposal):
        return []
    values: list[float] = p[
        [start + 1 + parent for parent in proposal.parents], proposal.tokens
    ].tolist()
    return values


def _walk(proposal: Proposal, at_parent: list[float]) -> tuple[tuple[int, ...], list[int]]:
    """The accepted nodes, and the tokens refused below the last of them."""
    draws = uniforms(len(proposal), proposal.sequence.rng)
    node, kept = ROOT, list[int]()
    while True:
        accepted, refused = _try_children(proposal, node, at_parent, draws)
        if accepted is None:
            return tuple(kept), refused
        kept.append(accepted)
        node = accepted


def _try_children(
    proposal: Proposal, node: int, at_parent: list[float], draws: list[float]
) -> tuple[int | None, list[int]]:
    """The first child that is accepted, and the tokens refused before it."""
    left, refused = 1.0, list[int]()
    for child in proposal.children(node):
        if draws[child] * left < at_parent[child]:
            return child, refused
        left -= at_parent[child]
        refused.append(proposal.tokens[child])
    return None, refused
