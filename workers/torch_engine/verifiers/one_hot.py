"""Rejection of tokens that were chosen, not drawn: look-ups, argmaxes, top-k children."""

from collections.abc import Sequence as Seq

from torch import Generator, Tensor

from workers.torch_engine.parts import Context, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.sampling import draw, draw_residual, uniforms, warp
from workers.torch_engine.tree import ROOT, Path, Proposal
from workers.torch_engine.verifiers.greedy import match_greedy


@register("verifier", "one_hot")
class OneHot:
    """Accept x with p(x); on rejection take it out of p, renormalise and try the next sibling;
    when all fail emit from what is left of p.

    Any tree of chosen nodes with different tokens under one parent. At temperature 0: greedy
    matching.
    """

    needs_distribution = False

    def __init__(self, _context: Context) -> None: ...

    def verify(self, proposals: Seq[Proposal], output: TargetOutput) -> list[Path]:
        """One path per proposal; raises ValueError for sampled nodes."""
        return [self._verify(proposal, output) for proposal in proposals]

    def _verify(self, proposal: Proposal, output: TargetOutput) -> Path:
        sequence = proposal.sequence
        if sequence.sampling.temperature == 0.0:
            return match_greedy(proposal, output)
        if any(proposal.sampled):
            raise ValueError("verifier 'one_hot' takes chosen tokens only; these were sampled")
        rows = output.logits[proposal.row : proposal.row + len(proposal) + 1]
        p = warp(rows, sequence.sampling)
        at_parent = p[[parent + 1 for parent in proposal.parents], proposal.tokens].tolist()
        draws = uniforms(len(proposal), sequence.rng)
        node, kept = ROOT, list[int]()
        while True:
            accepted, refused = _try_children(proposal, node, at_parent, draws)
            if accepted is None:
                return Path(tuple(kept), _emit(p[node + 1], refused, sequence.rng))
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


def _emit(p: Tensor, refused: list[int], rng: Generator) -> int:
    if not refused:
        return draw(p, rng)
    left = p.clone()
    left[refused] = 0.0
    return draw_residual(left, p, rng)
