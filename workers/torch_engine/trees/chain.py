"""A tree that is one path."""

from collections.abc import Sequence

from torch import Tensor

from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.distribution import draw, draw_at, warp_each
from workers.torch_engine.interfaces import Proposal
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.registry import register


@register("tree", "chain")
class Chain:
    """Grow one child per level: the drafter's argmax at temperature 0, a draw from q above it."""

    samples = True

    def __init__(self, _context: BuildContext) -> None: ...

    def expand(self, proposals: Sequence[Proposal], logits: DraftLogits) -> None:
        """Add one node to each proposal, whose frontier is a single node."""
        sampled = [i for i, p in enumerate(proposals) if p.sequence.sampling.temperature > 0.0]
        if len(sampled) < len(proposals):
            for proposal, token, row in zip(
                proposals, logits.favourites(), logits.unbind(), strict=True
            ):
                if proposal.sequence.sampling.temperature == 0.0:
                    proposal.frontier = [proposal.add(token, proposal.frontier[0], logits=row)]
        if sampled:
            rows = logits if len(sampled) == len(proposals) else logits.rows(sampled)
            self._draw([proposals[i] for i in sampled], rows)

    def finish(self, proposals: Sequence[Proposal]) -> None:
        """Keep all nodes."""

    def _draw(self, proposals: list[Proposal], logits: DraftLogits) -> None:
        q = warp_each(logits.whole(), [p.sequence.sampling for p in proposals])
        tokens = _drawn(q, proposals)
        for proposal, token, row, raw in zip(
            proposals, tokens, q.unbind(), logits.unbind(), strict=True
        ):
            proposal.frontier = [proposal.add(token, proposal.frontier[0], q=row, logits=raw)]


def _drawn(q: Tensor, proposals: Sequence[Proposal]) -> list[int]:
    """Draw a token per row of q [n, vocab]; under a seed with the target's noise, so that both
    often choose the same."""
    tokens = dict[int, int]()
    seeded = [i for i, p in enumerate(proposals) if p.sequence.sampling.seed is not None]
    others = [i for i in range(len(proposals)) if i not in seeded]
    if seeded:
        places = [proposals[i].place(proposals[i].frontier[0]) for i in seeded]
        tokens |= zip(seeded, draw_at(q[seeded], places), strict=True)
    if others:
        draws = [proposals[i].sequence.rng.random() for i in others]
        tokens |= zip(others, draw(q[others], draws), strict=True)
    return [tokens[i] for i in range(len(proposals))]
