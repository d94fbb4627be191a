"""The method's own parts, every step."""

from workers.torch_engine.parts import Context, Plan
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import Sequence
from workers.torch_engine.tree import Path, Proposal


@register("selector", "constant")
class Constant:
    """Always the method's drafter, tree and stop.

    extra_target_forwards: makes the method slow on purpose, for experiments with routing: so many
    identical target forwards are run and thrown away per step. The answers stay the same.
    """

    def __init__(self, context: Context, *, extra_target_forwards: int = 0) -> None:
        if context.plan is None:
            raise ValueError("selector 'constant' is built for a method")
        self._plan = context.plan
        self.extra_target_forwards = extra_target_forwards

    def choose(self, sequence: Sequence) -> Plan:  # noqa: ARG002
        """The method's plan."""
        return self._plan

    def observe(self, proposal: Proposal, path: Path) -> None:
        """Nothing to learn."""
