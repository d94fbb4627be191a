"""Parts that only tests use: wrong verifiers and a drafter of trees, registered as any other."""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from workers.torch_engine.parts import Context, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.sampling import uniforms
from workers.torch_engine.tree import ROOT, Path, Proposal
from workers.torch_engine.verification import draw_bonus, warped_rows


class _Wrong:
    """Rejection on a chain with one thing changed."""

    needs_distribution = False
    ratio_upside_down = False

    def __init__(self, _context: Context) -> None: ...

    def verify(self, proposals: Seq[Proposal], output: TargetOutput) -> list[Path]:
        return [self._verify(proposal, output) for proposal in proposals]

    def _verify(self, proposal: Proposal, output: TargetOutput) -> Path:
        rng, count = proposal.sequence.rng, len(proposal)
        p, _ = warped_rows([proposal], output)
        for i, (token, u) in enumerate(zip(proposal.tokens, uniforms(count, rng), strict=True)):
            q = proposal.q[i]
            if q is None:
                q = torch.nn.functional.one_hot(torch.tensor(token), p.shape[-1])
            ratio = p[i, token] / q[token]
            if u >= (1 / ratio if self.ratio_upside_down else ratio):
                left = (p[i] - q).clamp(min=0.0) if self.ratio_upside_down else p[i]
                bonus = draw_bonus(left[None], p[i : i + 1], [proposal])[0]
                return Path(tuple(range(i)), bonus)
        return Path(tuple(range(count)), draw_bonus(p[count:], p[count:], [proposal])[0])


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
