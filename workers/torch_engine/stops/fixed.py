"""A stop after a fixed number of levels."""

from workers.torch_engine.materials import Materials
from workers.torch_engine.parts import Proposal
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import Path


@register("stop", "fixed")
class Fixed:
    """Draft gamma levels in every step."""

    def __init__(self, _materials: Materials, *, gamma: int = 4) -> None:
        if gamma < 1:
            raise ValueError(f"stop 'fixed': gamma must be at least 1, not {gamma}")
        self._gamma = gamma

    def limit(self, sequence: DecodeSequence, batch: int) -> int:  # noqa: ARG002
        """Return gamma."""
        return self._gamma

    def goes_on(self, proposal: Proposal) -> bool:  # noqa: ARG002
        """Return True: it stops at the limit only."""
        return True

    def observe(self, proposal: Proposal, path: Path) -> None:
        """Do nothing."""
