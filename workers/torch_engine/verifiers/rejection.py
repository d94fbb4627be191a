"""Speculative sampling on a chain (Leviathan et al. 2023, arXiv 2211.17192)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from workers.torch_engine.distribution import uniforms
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.tree import Path
from workers.torch_engine.verifiers.target_choice import LosslessVerifier, draw_bonus, warped_rows


@register("verifier", "rejection")
class Rejection(LosslessVerifier):
    """Accept x with probability min(1, p(x) / q(x)); at the first rejection emit from
    norm(max(p - q, 0)), after full acceptance from p.

    A chosen node counts with a one-hot q. At temperature 0: greedy matching.
    """

    takes_trees = False

    def verify(self, proposals: Sequence[Proposal], output: TargetOutput) -> list[Path]:
        """See LosslessVerifier."""
        if not all(proposal.is_chain for proposal in proposals):
            raise ValueError("verifier 'rejection' takes chains only")
        return super().verify(proposals, output)

    def _sample(self, proposals: list[Proposal], output: TargetOutput) -> dict[int, Path]:
        p, starts = warped_rows(proposals, output)
        q, p_drawn, q_drawn = at_drafts(proposals, p, starts)
        kept, rejected, first = list[int](), list[tuple[int, int]](), 0
        for index, proposal in enumerate(proposals):
            count = len(proposal)
            draws = uniforms(count, proposal.sequence.rng)
            accepted = 0
            while accepted < count:
                if draws[accepted] * q_drawn[first + accepted] >= p_drawn[first + accepted]:
                    rejected.append((index, first + accepted))
                    break
                accepted += 1
            kept.append(accepted)
            first += count
        last = p[[start + count for start, count in zip(starts, kept, strict=True)]]
        weights = last.clone()
        if rejected:
            rows = [row for row, _ in rejected]
            weights[rows] = (weights[rows] - q[[draft for _, draft in rejected]]).clamp_(min=0.0)
        bonus = draw_bonus(weights, last, proposals)
        return {
            proposal.sequence.id: Path(tuple(range(count)), token)
            for proposal, count, token in zip(proposals, kept, bonus, strict=True)
        }


def at_drafts(
    proposals: list[Proposal], p: Tensor, starts: list[int]
) -> tuple[Tensor, list[float], list[float]]:
    """Return q [drafts, vocab] of all drafts in order, and p and q at the drafted tokens."""
    tokens = [token for proposal in proposals for token in proposal.tokens]
    if not tokens:
        return p[:0], [], []
    rows = [start + i for s, start in zip(proposals, starts, strict=True) for i in range(len(s))]
    drawn = torch.tensor(tokens, device=p.device)
    given = [q for proposal in proposals for q in proposal.q]
    if all(q is None for q in given):
        return _one_hot(drawn, p), p[rows, drawn].tolist(), [1.0] * len(tokens)
    q = torch.stack([_one_hot(drawn[i], p) if q is None else q for i, q in enumerate(given)])
    return q, p[rows, drawn].tolist(), q.gather(1, drawn[:, None]).view(-1).tolist()


def _one_hot(tokens: Tensor, p: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(tokens, p.shape[-1]).to(p.dtype)
