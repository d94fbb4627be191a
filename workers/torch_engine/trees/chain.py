"""One path."""

from collections.abc import Sequence as Seq

from torch import Tensor

from workers.torch_engine.parts import Context
from workers.torch_engine.registry import register
from workers.torch_engine.sampling import draw, warp
from workers.torch_engine.tree import Proposal


@register("tree", "chain")
class Chain:
    """One child per level: the drafter's argmax at temperature 0, a draw from q above it."""

    def __init__(self, _context: Context) -> None: ...

    def expand(self, proposals: Seq[Proposal], logits: Tensor) -> None:
        """Add one node to each proposal, whose frontier is a single node."""
        greedy = all(p.sequence.sampling.temperature == 0.0 for p in proposals)
        best: list[int] = logits.argmax(-1).tolist() if greedy else []
        for index, proposal in enumerate(proposals):
            sequence, parent, row = proposal.sequence, proposal.frontier[0], logits[index]
            if greedy:
                node = proposal.add(best[index], parent, logits=row)
            elif sequence.sampling.temperature == 0.0:
                node = proposal.add(int(row.argmax()), parent, logits=row)
            else:
                q = warp(row[None], sequence.sampling)[0]
                node = proposal.add(draw(q, sequence.rng), parent, q=q, logits=row)
            proposal.frontier = [node]
