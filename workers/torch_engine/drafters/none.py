"""The drafter of plain decoding."""

from collections.abc import Sequence

from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import Path


@register("drafter", "none")
class NoDrafter:
    """Draft nothing, so that every step emits the target's token."""

    captures: frozenset[int] = frozenset()
    has_distribution = False

    def __init__(self, _context: BuildContext) -> None: ...

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Leave the proposals empty."""

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:
        """Do nothing: there is no state."""

    def release(self, sequence: DecodeSequence) -> None:
        """Do nothing: there is no state."""
