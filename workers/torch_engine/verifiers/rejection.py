"""Speculative sampling on a chain (Leviathan et al. 2023, arXiv 2211.17192)."""

from workers.torch_engine.distribution import uniforms
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.tree import Path
from workers.torch_engine.verifiers.multi_step import families
from workers.torch_engine.verifiers.target_choice import LosslessVerifier, draw_bonus, warped_rows


@register("verifier", "rejection")
class Rejection(LosslessVerifier):
    """Accept x with probability min(1, p(x) / q(x)); at the first rejection emit from
    norm(max(p - q, 0)), after full acceptance from p.

    A chosen node counts with a one-hot q. At temperature 0: greedy matching.
    """

    takes_trees = False

    def _sample(self, proposals: list[Proposal], output: TargetOutput) -> dict[int, Path]:
        p, starts = warped_rows(proposals, output)
        members = [(i, node) for i, one in enumerate(proposals) for node in range(len(one))]
        p_drawn, q_drawn, q = list[float](), list[float](), p[:0]
        if members:
            parents, at, q = families(proposals, members, p, starts)
            p_drawn, q_drawn = p[parents, at[:, 0]].tolist(), q.gather(1, at).view(-1).tolist()
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
