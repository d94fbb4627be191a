"""The method's own parts, every step."""

from workers.torch_engine.materials import Materials
from workers.torch_engine.parts import Plan, Proposal
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import Path


@register("selector", "constant")
class Constant:
    """Always the method's drafter, tree and stop."""

    def __init__(self, materials: Materials) -> None:
        if materials.plan is None:
            raise ValueError("selector 'constant' is built for a method")
        self._plan = materials.plan

    def choose(self, sequence: DecodeSequence) -> Plan:  # noqa: ARG002
        """The method's plan."""
        return self._plan

    def observe(self, proposal: Proposal, path: Path) -> None:
        """Nothing to learn."""
