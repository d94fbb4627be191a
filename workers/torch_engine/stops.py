"""When drafting stops: after a number of levels."""

from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.interfaces import Proposal
from workers.torch_engine.registry import register


@register("stop", "fixed")
class Fixed:
    """Draft gamma levels in every step."""

    def __init__(self, _context: BuildContext, *, gamma: int = 4) -> None:
        if gamma < 1:
            raise ValueError(f"stop 'fixed': gamma must be at least 1, not {gamma}")
        self.limit = gamma

    def goes_on(self, proposal: Proposal) -> bool:  # noqa: ARG002
        """Return True: it stops at the limit only."""
        return True
