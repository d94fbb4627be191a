"""A tree that follows the drafter's confidence (EAGLE-2, arXiv 2406.16858)."""

from collections.abc import Sequence

from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.interfaces import Proposal
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.models.kv_pool import TREE_ROOM
from workers.torch_engine.registry import register
from workers.torch_engine.tree import ROOT
from workers.torch_engine.tree_growth import rows_of


@register("tree", "eagle2")
class Eagle2:
    """Value V of a node: the sum of log q along its path, q the drafter's raw softmax.

    Every level extends its k best nodes to their k best children each; after the last level the
    `nodes` best of all stay, of equals the shallower. A child's V is never above its parent's, so
    what stays is connected. All children are chosen, at every temperature.
    """

    samples = False

    def __init__(self, context: BuildContext, *, nodes: int = 16, k: int = 4) -> None:
        if not 1 <= k <= nodes <= TREE_ROOM:
            raise ValueError(
                f"tree 'eagle2': needs 1 <= k <= nodes <= {TREE_ROOM}, not k={k}, nodes={nodes}"
            )
        if k > context.vocab:
            raise ValueError(f"tree 'eagle2': k={k} exceeds the vocabulary of {context.vocab}")
        self._nodes, self._k = nodes, k

    def expand(self, proposals: Sequence[Proposal], logits: DraftLogits) -> None:
        """Add the k best children of each frontier node, and extend the k best of those."""
        (scores, tokens), raw = logits.best(self._k), logits.unbind()
        for proposal, rows in zip(proposals, rows_of(proposals, logits), strict=True):
            candidates = [
                (value + score, token, node, row)
                for node, row in zip(proposal.frontier, rows, strict=True)
                for value in (0.0 if node == ROOT else proposal.values[node],)
                for score, token in zip(scores[row], tokens[row], strict=True)
            ]
            candidates.sort(key=lambda candidate: -candidate[0])
            # others cannot be among the best: there are `nodes` better ones here
            added = [
                proposal.add(token, node, logits=raw[row], value=value)
                for value, token, node, row in candidates[: self._nodes]
            ]
            # the drafter reads another level, and its row has only as much room as the target's
            proposal.frontier = added[: min(self._k, TREE_ROOM - len(proposal.cached))]

    def finish(self, proposals: Sequence[Proposal]) -> None:
        """Keep the best nodes of all levels."""
        for proposal in proposals:
            if len(proposal) > self._nodes:
                values = proposal.values
                # nodes are ordered by level and sorting is stable: of equals the shallower stay
                best = sorted(range(len(proposal)), key=lambda node: -values[node])
                proposal.keep(sorted(best[: self._nodes]))
