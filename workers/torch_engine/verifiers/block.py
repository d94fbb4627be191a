"""Block verification of sampled chains (Sun et al. 2024, arXiv 2403.10444)."""

import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from workers.torch_engine.distribution import uniforms
from workers.torch_engine.materials import Materials
from workers.torch_engine.parts import Proposal
from workers.torch_engine.registry import register
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tree import Path
from workers.torch_engine.verifiers.descent import warped_rows
from workers.torch_engine.verifiers.rejection import at_drafts
from workers.torch_engine.verifiers.target_choice import choose_or_sample, draw_bonus

TINY = sys.float_info.min


@register("verifier", "block")
class Block:
    """Accept the longest prefix of a chain that passes a test of its joint probability.

    A prefix is weighed by w_i = min(1, w_{i-1} p(x_i) / q(x_i)), with w_0 = 1. One that ends
    before the last token passes with probability s / (s + 1 - w_i), where s is the mass of
    max(w_i p - q, 0) at the next position; the whole chain passes with w_i. After a shorter prefix
    the token comes from that excess, renormalised, after the whole chain from p. In expectation
    this accepts at least as many tokens as `rejection`. A chosen node counts with a one-hot q. At
    temperature 0: greedy matching.
    """

    needs_distribution = False
    takes_trees = False
    takes_sampled = True

    def __init__(self, _materials: Materials) -> None: ...

    def verify(self, proposals: Sequence[Proposal], output: TargetOutput) -> list[Path]:
        """Return one path per proposal. Raises ValueError for trees that are not chains."""
        if not all(proposal.is_chain for proposal in proposals):
            raise ValueError("verifier 'block' takes chains only")
        return choose_or_sample(proposals, output, self._sample)

    def _sample(self, proposals: list[Proposal], output: TargetOutput) -> dict[int, Path]:
        p, starts = warped_rows(proposals, output)
        chances, excess = judge(proposals, p, starts)
        kept, short, first = list[int](), list[tuple[int, int]](), 0
        for index, (proposal, passes) in enumerate(zip(proposals, chances, strict=True)):
            draws = uniforms(len(passes), proposal.sequence.rng)
            passed = [i for i, chance in enumerate(passes) if draws[i] < chance]
            kept.append(passed[-1] + 1 if passed else 0)
            if kept[-1] < len(passes):
                short.append((index, first + kept[-1]))
            first += len(passes)
        last = p[[start + count for start, count in zip(starts, kept, strict=True)]]
        weights = last.clone()
        if short:
            weights[[row for row, _ in short]] = excess[[draft for _, draft in short]]
        bonus = draw_bonus(weights, last, proposals)
        return {
            proposal.sequence.id: Path(tuple(range(count)), token)
            for proposal, count, token in zip(proposals, kept, bonus, strict=True)
        }


def judge(
    proposals: list[Proposal], p: Tensor, starts: list[int]
) -> tuple[list[list[float]], Tensor]:
    """Return for each proposal the chances that its prefixes of 1, 2, ... tokens pass, and
    max(w p - q, 0) [drafts, vocab] at the position of every draft, in order.

    p: [rows, vocab], of each proposal the root's row, at `starts`, and its nodes'.
    """
    q, p_drawn, q_drawn = at_drafts(proposals, p, starts)
    ratios = iter([a / max(b, TINY) for a, b in zip(p_drawn, q_drawn, strict=True)])
    joint = list[list[float]]()
    for proposal in proposals:
        joint.append([1.0])
        for _ in range(len(proposal)):
            joint[-1].append(min(1.0, joint[-1][-1] * next(ratios)))
    rows = [start + i for s, start in zip(proposals, starts, strict=True) for i in range(len(s))]
    scale = torch.tensor([w for own in joint for w in own[:-1]], dtype=p.dtype, device=p.device)
    excess = (scale[:, None] * p[rows] - q).clamp_(min=0.0)
    masses = iter(excess.sum(-1).tolist())
    chances = list[list[float]]()
    for weights in joint:
        following = [next(masses) for _ in weights[1:]]
        shorter = zip(weights[1:-1], following[1:], strict=True)
        chances.append([*(_chance(w, s) for w, s in shorter), *weights[1:][-1:]])
    return chances, excess


def _chance(weight: float, mass: float) -> float:
    """Return the chance that a prefix passes which is not the whole chain.

    Without excess it fails: the longer prefixes pass instead if its weight is 1.
    """
    return mass / (mass + (1.0 - weight)) if mass > 0.0 else 0.0
