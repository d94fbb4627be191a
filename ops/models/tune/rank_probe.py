"""Records how a drafter ranks the tokens that an answer really has."""

from collections.abc import Sequence

import numpy as np

from ops.models.tune.tree_planner import Ranks
from workers.torch_engine.growth import rows_of
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.parts import Drafter, Plan, Proposal
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tree import ROOT, Path


class RankProbe:
    """Tree, stop and verifier of a method whose answer is known in advance.

    The tree is a chain of the answer's own tokens, so that ranks at every level follow the true
    text. The verifier accepts none of them, so that a step begins at every position.
    """

    needs_distribution = False
    takes_trees = False
    takes_sampled = False
    samples = False

    def __init__(self, drafter: Drafter, levels: int, beyond: int) -> None:
        """beyond: what stands where the answer has ended or nothing was drafted."""
        self.plan = Plan(drafter, self, self)
        self._levels, self._beyond = levels, beyond
        self._answer: Sequence[int] = ()
        self._ranks: Ranks = np.empty((0, levels), dtype=np.int64)

    def begin(self, answer: Sequence[int]) -> Ranks:
        """Return the ranks [positions, levels] that decoding this answer fills in."""
        self._answer = answer
        self._ranks = np.full((len(answer) - 1, self._levels), self._beyond, dtype=np.int64)
        return self._ranks

    def limit(self, sequence: DecodeSequence, batch: int) -> int:  # noqa: ARG002
        """Return the number of levels, as a stop."""
        return self._levels

    def goes_on(self, proposal: Proposal) -> bool:  # noqa: ARG002
        """Return True, as a stop."""
        return True

    def observe(self, proposal: Proposal, path: Path) -> None:
        """Nothing to learn."""

    def expand(self, proposals: Sequence[Proposal], logits: DraftLogits) -> None:
        """Add the answer's next token, as a tree, and record its rank."""
        for proposal, rows in zip(proposals, rows_of(proposals, logits), strict=True):
            node, said = proposal.frontier[0], logits.rows([rows[0]])
            level = 0 if node == ROOT else proposal.depths[node] + 1
            emitted = proposal.sequence.output_tokens
            token = self._answer[emitted + level]
            row = said.whole()[0]
            self._ranks[emitted - 1, level] = int((row > row[token]).sum())
            proposal.frontier = [proposal.add(token, node, logits=said)]

    def finish(self, proposals: Sequence[Proposal]) -> None:
        """Keep all nodes, as a tree."""

    def verify(self, proposals: Sequence[Proposal], output: TargetOutput) -> list[Path]:  # noqa: ARG002
        """Accept one token of the answer, as a verifier."""
        return [Path((), self._answer[proposal.sequence.output_tokens]) for proposal in proposals]
