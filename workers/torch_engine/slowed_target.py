"""A target that is slow on purpose, for experiments with routing."""

from collections.abc import Collection, Sequence

from workers.torch_engine.parts import Proposal
from workers.torch_engine.target import Target
from workers.torch_engine.target_output import TargetOutput


class SlowedTarget(Target):
    """The same model and pool; some methods' forwards are run several times over.

    The same forward again writes the same keys, so that it costs its time and changes no answer.
    """

    def __init__(self, target: Target) -> None:
        super().__init__(target.model, target.pool)
        self._target = target
        self.costs = target.costs
        self.extra_forwards: dict[str, int] = {}
        """By method, so many more per step; may be changed at any time, by any thread."""

    def forward(
        self, proposals: Sequence[Proposal], captures: Collection[int] = ()
    ) -> TargetOutput:
        """As Target.forward."""
        extra = [self.extra_forwards.get(p.sequence.method, 0) for p in proposals]
        for done in range(max(extra)):
            repeated = [p for p, times in zip(proposals, extra, strict=True) if times > done]
            self._target.forward(repeated, captures)
        return self._target.forward(proposals, captures)
