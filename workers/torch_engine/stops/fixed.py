"""A fixed number of draft tokens."""

from workers.torch_engine.materials import Materials
from workers.torch_engine.parts import Proposal
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import Path


@register("stop", "fixed")
class Fixed:
    """gamma levels, every step."""

    def __init__(self, _materials: Materials, *, gamma: int = 4) -> None:
        if gamma < 1:
            raise ValueError(f"stop 'fixed': gamma must be at least 1, not {gamma}")
        self._gamma = gamma

    def limit(self, sequence: DecodeSequence, batch: int) -> int:  # noqa: ARG002
        """gamma."""
        return self._gamma

    def goes_on(self, proposal: Proposal) -> bool:  # noqa: ARG002
        """Never stops before the limit."""
        return True

    def observe(self, proposal: Proposal, path: Path) -> None:
        """Nothing to learn."""
