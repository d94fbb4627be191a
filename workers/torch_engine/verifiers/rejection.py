"""Speculative sampling on a chain (Leviathan et al. 2023, arXiv 2211.17192)."""

from collections.abc import Sequence as Seq

import torch

from workers.torch_engine.parts import Context, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.sampling import draw, draw_residual, uniforms, warp
from workers.torch_engine.tree import Path, Proposal
from workers.torch_engine.verifiers.greedy import match_greedy


@register("verifier", "rejection")
class Rejection:
    """Accept x with probability min(1, p(x) / q(x)); at the first rejection emit from
    norm(max(p - q, 0)), after full acceptance from p.

    A chosen node counts with a one-hot q. At temperature 0: greedy matching.
    """

    needs_distribution = False

    def __init__(self, _context: Context) -> None: ...

    def verify(self, proposals: Seq[Proposal], output: TargetOutput) -> list[Path]:
        """One path per proposal; raises ValueError for trees that are not chains."""
        return [self._verify(proposal, output) for proposal in proposals]

    def _verify(self, proposal: Proposal, output: TargetOutput) -> Path:
        sequence, drafted = proposal.sequence, len(proposal)
        if not proposal.is_chain:
            raise ValueError("verifier 'rejection' takes chains only")
        if sequence.sampling.temperature == 0.0:
            return match_greedy(proposal, output)
        p = warp(output.logits[proposal.row : proposal.row + drafted + 1], sequence.sampling)
        if not drafted:
            return Path((), draw(p[0], sequence.rng))
        q = proposal.draft_probabilities()
        drawn = torch.tensor(proposal.tokens, device=p.device)[:, None]
        p_drawn = p[:-1].gather(1, drawn).view(-1).tolist()
        q_drawn = q.gather(1, drawn).view(-1).tolist()
        kept = 0
        for u, p_x, q_x in zip(uniforms(drafted, sequence.rng), p_drawn, q_drawn, strict=True):
            if u * q_x >= p_x:
                residual = (p[kept] - q[kept]).clamp_(min=0.0)
                return Path(tuple(range(kept)), draw_residual(residual, p[kept], sequence.rng))
            kept += 1
        return Path(tuple(range(kept)), draw(p[kept], sequence.rng))
