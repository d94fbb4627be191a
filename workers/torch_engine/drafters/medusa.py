"""Medusa: several heads that predict the tokens after the target's next one at once."""

from collections.abc import Sequence
from pathlib import Path as FilePath

import torch
from torch import Tensor

from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.drafters.head_versions import HeadVersions
from workers.torch_engine.interfaces import Drafter, Proposal, TargetOutput
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.models.heads.medusa import MedusaHeads
from workers.torch_engine.models.llama import FINAL
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import Path
from workers.torch_engine.tree_growth import grow


@register("drafter", "medusa")
class Medusa(Drafter):
    """Draft level k of every tree with head k, whatever the levels above hold.

    part: the bundle's part that holds the heads. They read the state from which the last emitted
    token was chosen, and that token is always read.
    """

    captures = frozenset({FINAL})
    has_distribution = True

    def __init__(self, context: BuildContext, *, part: str = "medusa") -> None:
        bundled = context.bundle.part(part)

        def load(folder: FilePath | None) -> MedusaHeads:
            return MedusaHeads(folder or bundled, context.target)

        self.versions = HeadVersions(part, load(None), load)
        self._states: dict[int, Tensor] = {}

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Grow each tree by one level per head until its limit, its stop or an empty frontier."""
        heads = [self.versions.of(p.sequence) for p in proposals]
        for each in dict.fromkeys(heads):
            self._propose(each, [p for p, its in zip(proposals, heads, strict=True) if its is each])

    def _propose(self, heads: MedusaHeads, proposals: Sequence[Proposal]) -> None:
        states = torch.cat([self._states[p.sequence.id] for p in proposals])
        row = {proposal.sequence.id: index for index, proposal in enumerate(proposals)}
        levels = iter(heads.forward(states))
        for proposal in proposals:
            proposal.limit = min(proposal.limit, heads.count)

        def read(active: list[Proposal]) -> DraftLogits:
            level = next(levels)
            if len(active) == len(proposals):
                return level
            return level.rows([row[proposal.sequence.id] for proposal in active])

        grow(proposals, read)

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:
        """Keep the state at the end of the path."""
        known = proposal.sequence.id
        self.versions.bind(proposal.sequence)
        last = path.nodes[-1] + 1 if path.nodes else 0
        row = output.starts[known] + output.pending[known] - 1 + last
        # a view would keep the states of the whole forward alive
        self._states[known] = output.hidden[FINAL][row : row + 1].clone()

    def release(self, sequence: DecodeSequence) -> None:
        """Forget the sequence's state."""
        self._states.pop(sequence.id, None)
        self.versions.release(sequence)
