"""Parts that only tests use: a drafter of trees and a tree, registered as any other."""

from collections.abc import Sequence

from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.interfaces import Drafter, Proposal
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.registry import register
from workers.torch_engine.tree import ROOT


@register("drafter", "test_tree")
class LeafyTree(Drafter):
    """Two chosen children at the root, two under the second of them, one under each of those."""

    def __init__(self, context: BuildContext) -> None:
        self._vocab = context.vocab

    def propose(self, proposals: Sequence[Proposal]) -> None:
        for proposal in proposals:
            last, levels = proposal.sequence.tokens[-1], proposal.limit
            one, two, three = ((last + step) % self._vocab for step in (1, 2, 3))
            proposal.add(one, ROOT)
            second = proposal.add(two, ROOT)
            if levels > 1:
                third = proposal.add(three, second)
                fourth = proposal.add(last, second)
                if levels > 2:
                    proposal.add(one, third)
                    proposal.add(two, fourth)


@register("tree", "test_pairs")
class Pairs:
    """The two best children of every node; only the second is extended, the first stays a leaf."""

    samples = False

    def __init__(self, _context: BuildContext) -> None: ...

    def expand(self, proposals: Sequence[Proposal], logits: DraftLogits) -> None:
        start, two_best = 0, logits.best_tokens(2)
        for proposal in proposals:
            rows = two_best[start : start + len(proposal.frontier)]
            start += len(proposal.frontier)
            extended = []
            for parent, best in zip(proposal.frontier, rows, strict=True):
                proposal.add(best[1], parent)
                extended.append(proposal.add(best[0], parent))
            proposal.frontier = extended

    def finish(self, proposals: Sequence[Proposal]) -> None: ...
