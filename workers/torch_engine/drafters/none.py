"""Plain decoding."""

from collections.abc import Sequence as Seq

from workers.torch_engine.parts import Context, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import Sequence
from workers.torch_engine.tree import Path, Proposal


@register("drafter", "none")
class NoDrafter:
    """Drafts nothing: every step emits the target's own token."""

    captures: frozenset[int] = frozenset()
    has_distribution = False

    def __init__(self, _context: Context) -> None: ...

    def propose(self, proposals: Seq[Proposal]) -> None:
        """Leave the proposals empty."""

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:
        """No state."""

    def release(self, sequence: Sequence) -> None:
        """No state."""
