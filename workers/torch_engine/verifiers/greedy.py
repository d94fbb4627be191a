"""Acceptance of tokens that the target chooses too."""

from collections.abc import Sequence

from torch import Tensor

from workers.torch_engine.distribution import draw, uniforms
from workers.torch_engine.materials import Materials
from workers.torch_engine.parts import Proposal, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.tree import Path
from workers.torch_engine.verifiers.target_choice import Node, choose_or_sample, follow_choices


@register("verifier", "greedy")
class Greedy:
    """Let the target choose a token at every node, and accept the path that agrees.

    The target takes the argmax at temperature 0 and draws from the warped p above it, so the
    emitted tokens are its own: lossless.
    """

    needs_distribution = False
    takes_trees = True
    takes_sampled = True

    def __init__(self, _materials: Materials) -> None: ...

    def verify(self, proposals: Sequence[Proposal], output: TargetOutput) -> list[Path]:
        """Return one path per proposal."""
        return choose_or_sample(proposals, output, _sample)


def _sample(proposals: list[Proposal], output: TargetOutput) -> dict[int, Path]:
    draws = {p.sequence.id: uniforms(len(p) + 1, p.sequence.rng) for p in proposals}

    def choose(p: Tensor, nodes: Sequence[Node]) -> list[int]:
        return draw(p, [draws[proposal.sequence.id][node + 1] for proposal, node in nodes])

    return follow_choices(proposals, output, choose)
