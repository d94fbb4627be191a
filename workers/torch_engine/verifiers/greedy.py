"""Keep what the target would have said itself."""

from collections.abc import Sequence as Seq

import torch

from workers.torch_engine.parts import Context, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.sampling import warp
from workers.torch_engine.tree import ROOT, Path, Proposal


def walk(proposal: Proposal, choices: Seq[int]) -> Path:
    """Follow the target's own choices (the root's first, then each node's) down the tree."""
    node, kept = ROOT, list[int]()
    while True:
        choice = choices[node + 1]
        child = next((c for c in proposal.children(node) if proposal.tokens[c] == choice), None)
        if child is None:
            return Path(tuple(kept), choice)
        kept.append(child)
        node = child


def match_greedy(proposal: Proposal, output: TargetOutput) -> Path:
    """The longest path whose every token is the target's argmax at its parent, then the argmax."""
    return walk(proposal, output.best[proposal.row : proposal.row + len(proposal) + 1])


@register("verifier", "greedy")
class Greedy:
    """The target chooses a token at every node; the path that agrees is kept.

    It takes the argmax at temperature 0 and draws from the warped p above it, so either way the
    emitted tokens are the target's own: lossless.
    """

    needs_distribution = False

    def __init__(self, _context: Context) -> None: ...

    def verify(self, proposals: Seq[Proposal], output: TargetOutput) -> list[Path]:
        """One path per proposal."""
        return [self._verify(proposal, output) for proposal in proposals]

    def _verify(self, proposal: Proposal, output: TargetOutput) -> Path:
        sequence = proposal.sequence
        if sequence.sampling.temperature == 0.0:
            return match_greedy(proposal, output)
        rows = output.logits[proposal.row : proposal.row + len(proposal) + 1]
        p = warp(rows, sequence.sampling)
        return walk(proposal, torch.multinomial(p, 1, generator=sequence.rng).view(-1).tolist())
