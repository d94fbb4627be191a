"""Keep what the target would have said itself."""

from collections.abc import Sequence

from workers.torch_engine.distribution import draw, uniforms
from workers.torch_engine.materials import Materials
from workers.torch_engine.parts import Proposal
from workers.torch_engine.registry import register
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tree import Path
from workers.torch_engine.verifiers.target_choice import split_chosen, walk, warped_rows


@register("verifier", "greedy")
class Greedy:
    """The target chooses a token at every node; the path that agrees is kept.

    It takes the argmax at temperature 0 and draws from the warped p above it, so either way the
    emitted tokens are the target's own: lossless.
    """

    needs_distribution = False
    takes_trees = True
    takes_sampled = True

    def __init__(self, _materials: Materials) -> None: ...

    def verify(self, proposals: Sequence[Proposal], output: TargetOutput) -> list[Path]:
        """One path per proposal."""
        paths, sampled = split_chosen(proposals, output)
        if sampled:
            p, starts = warped_rows(sampled, output)
            draws = [u for s in sampled for u in uniforms(len(s) + 1, s.sequence.rng)]
            choices = draw(p, draws)
            for proposal, start in zip(sampled, starts, strict=True):
                paths[proposal.sequence.id] = walk(proposal, choices[start:])
        return [paths[proposal.sequence.id] for proposal in proposals]
