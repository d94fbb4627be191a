"""Parts that only tests use: wrong verifiers and a drafter of trees, registered as any other."""

from collections.abc import Sequence as Seq

from torch import Tensor

from workers.torch_engine.parts import Context, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.sampling import draw, draw_residual, uniforms, warp
from workers.torch_engine.tree import ROOT, Path, Proposal


class _Wrong:
    """Rejection on a chain with one thing changed."""

    needs_distribution = False
    ratio_upside_down = False

    def __init__(self, _context: Context) -> None: ...

    def verify(self, proposals: Seq[Proposal], output: TargetOutput) -> list[Path]:
        return [self._verify(proposal, output) for proposal in proposals]

    def _verify(self, proposal: Proposal, output: TargetOutput) -> Path:
        rng, count = proposal.sequence.rng, len(proposal)
        rows = output.logits[proposal.row : proposal.row + count + 1]
        p = warp(rows, proposal.sequence.sampling)
        if not count:
            return Path((), draw(p[0], rng))
        q = proposal.draft_probabilities()
        for i, (token, u) in enumerate(zip(proposal.tokens, uniforms(count, rng), strict=True)):
            ratio = p[i, token] / q[i, token]
            if u >= (1 / ratio if self.ratio_upside_down else ratio):
                left = (p[i] - q[i]).clamp(min=0.0) if self.ratio_upside_down else p[i]
                return Path(tuple(range(i)), draw_residual(left, p[i], rng))
        return Path(tuple(range(count)), draw(p[count], rng))


@register("verifier", "test_upside_down")
class UpsideDown(_Wrong):
    """Accepts with q / p."""

    ratio_upside_down = True


@register("verifier", "test_no_residual")
class NoResidual(_Wrong):
    """Emits from p after a rejection, not from max(p - q, 0)."""


@register("drafter", "test_tree")
class LeafyTree:
    """Two chosen children at the root, two under the second of them, one under each of those."""

    captures: frozenset[int] = frozenset()
    has_distribution = False

    def __init__(self, context: Context) -> None:
        self._vocab = context.vocab

    def propose(self, proposals: Seq[Proposal]) -> None:
        for proposal in proposals:
            last, levels = proposal.sequence.tokens[-1], proposal.limit
            one, two, three = ((last + step) % self._vocab for step in (1, 2, 3))
            proposal.add(one, ROOT)
            second = proposal.add(two, ROOT)
            if levels > 1:
                third = proposal.add(three, second)
                fourth = proposal.add(last, second)
                if levels > 2:
                    proposal.add(one, third)
                    proposal.add(two, fourth)

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None: ...

    def release(self, sequence: object) -> None: ...


@register("tree", "test_pairs")
class Pairs:
    """The two best children of every node; only the second is extended, the first stays a leaf."""

    def __init__(self, _context: Context) -> None: ...

    def expand(self, proposals: Seq[Proposal], logits: Tensor) -> None:
        start = 0
        for proposal in proposals:
            rows = logits[start : start + len(proposal.frontier)]
            start += len(proposal.frontier)
            extended = []
            for parent, best in zip(proposal.frontier, rows.topk(2).indices.tolist(), strict=True):
                proposal.add(best[1], parent)
                extended.append(proposal.add(best[0], parent))
            proposal.frontier = extended
