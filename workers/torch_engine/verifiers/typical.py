"""Typical acceptance (Medusa, arXiv 2401.10774): accept tokens that are likely enough under the
target. Lossy above temperature 0."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.tree import ROOT, Path
from workers.torch_engine.verifiers.target_choice import ended, split_greedy, warped_rows


@register("verifier", "typical")
class Typical:
    """Accept x where p(x) > min(epsilon, delta * exp(-H(p))), H in nats; the longest accepted path
    wins, of equally long ones that of the larger sum of log p. The token after it is drawn from p.

    p is the softmax under the request's temperature, top-k and top-p: what they exclude is not
    accepted. At temperature 0: greedy matching.
    """

    needs_distribution = False
    takes_trees = True
    takes_sampled = True

    def __init__(
        self, _context: BuildContext, *, epsilon: float = 0.09, delta: float = 0.3
    ) -> None:
        if not (0.0 <= epsilon < 1.0 and delta >= 0.0):
            raise ValueError(
                f"verifier 'typical': epsilon is from 0 up to 1 and delta not negative, not "
                f"{epsilon} and {delta}"
            )
        self._epsilon, self._delta = epsilon, delta

    def verify(self, proposals: Sequence[Proposal], output: TargetOutput) -> list[Path]:
        """Return one path per proposal."""
        paths, sampled = split_greedy(proposals, output)
        if sampled:
            paths |= self._accept(sampled, output)
        return [paths[proposal.sequence.id] for proposal in proposals]

    def _accept(self, proposals: list[Proposal], output: TargetOutput) -> dict[int, Path]:
        p, starts = warped_rows(proposals, output)
        at_parent, threshold = self._judged(proposals, p, starts)
        kept, first = list[tuple[int, ...]](), 0
        for proposal in proposals:
            own = slice(first, first + len(proposal))
            kept.append(_best_path(proposal, at_parent[own], threshold[own]))
            first += len(proposal)
        return ended(proposals, kept, p, starts)

    def _judged(
        self, proposals: list[Proposal], p: Tensor, starts: list[int]
    ) -> tuple[list[float], list[float]]:
        """Return, per node of all proposals, p of its token at its parent and the threshold."""
        parents = [
            start + 1 + parent
            for proposal, start in zip(proposals, starts, strict=True)
            for parent in proposal.parents
        ]
        tokens = [token for proposal in proposals for token in proposal.tokens]
        negative_entropy = torch.xlogy(p, p).sum(-1)
        threshold = (self._delta * negative_entropy.exp()).clamp(max=self._epsilon)
        return p[parents, tokens].tolist(), threshold[parents].tolist()


def _best_path(
    proposal: Proposal, at_parent: list[float], threshold: list[float]
) -> tuple[int, ...]:
    """Return the path to the deepest node whose whole path is accepted."""
    best, best_key = ROOT, (0, 0.0)
    sums: dict[int, float] = {ROOT: 0.0}
    for node, parent in enumerate(proposal.parents):
        if parent in sums and at_parent[node] > threshold[node]:
            sums[node] = sums[parent] + math.log(at_parent[node])
            best_key, best = max((best_key, best), ((proposal.depths[node] + 1, sums[node]), node))
    return proposal.path_to(best)
