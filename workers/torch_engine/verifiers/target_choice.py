"""What verifiers share: the target's warped rows, greedy matching, and the last token's draw."""

from collections.abc import Sequence

import torch
from torch import Tensor

from workers.torch_engine.distribution import draw, warp_each
from workers.torch_engine.models.transfer import indices
from workers.torch_engine.noise import draw_at
from workers.torch_engine.parts import Proposal
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tree import ROOT, Path


def walk(proposal: Proposal, choices: Sequence[int]) -> Path:
    """Follow the target's own choices (the root's first, then each node's) down the tree."""
    node, kept = ROOT, list[int]()
    while True:
        choice = choices[node + 1]
        child = next((c for c in proposal.children(node) if proposal.tokens[c] == choice), None)
        if child is None:
            return Path(tuple(kept), choice)
        kept.append(child)
        node = child


def match_greedy(proposal: Proposal, output: TargetOutput) -> Path:
    """The longest path whose every token is the target's argmax at its parent, then the argmax."""
    return walk(proposal, output.best[proposal.row : proposal.row + len(proposal) + 1])


def split_greedy(
    proposals: Sequence[Proposal], output: TargetOutput
) -> tuple[dict[int, Path], list[Proposal]]:
    """Paths of the proposals at temperature 0, by sequence id, and the proposals above it."""
    greedy = [p for p in proposals if p.sequence.sampling.temperature == 0.0]
    paths = {p.sequence.id: match_greedy(p, output) for p in greedy}
    return paths, [p for p in proposals if p.sequence.sampling.temperature > 0.0]


def split_chosen(
    proposals: Sequence[Proposal], output: TargetOutput
) -> tuple[dict[int, Path], list[Proposal]]:
    """Paths, by sequence id, of the proposals at temperature 0 and of those with a seed, and the
    other proposals.

    Under a seed the target chooses a token at every node, by its warped distribution and the noise
    of the token's place in the answer alone: whatever was drafted, the answer is the same.
    """
    paths, sampled = split_greedy(proposals, output)
    seeded = [p for p in sampled if p.sequence.sampling.seed is not None]
    if seeded:
        p, starts = warped_rows(seeded, output)
        places = [one.place(node) for one in seeded for node in range(ROOT, len(one))]
        choices = draw_at(p, places)
        for proposal, start in zip(seeded, starts, strict=True):
            paths[proposal.sequence.id] = walk(proposal, choices[start:])
    return paths, [p for p in sampled if p.sequence.sampling.seed is None]


def warped_rows(proposals: Sequence[Proposal], output: TargetOutput) -> tuple[Tensor, list[int]]:
    """p [rows, vocab] float32 at every root and node, warped, and where each proposal's begin."""
    rows, starts, samplings = list[int](), list[int](), []
    for proposal in proposals:
        count = len(proposal) + 1
        starts.append(len(rows))
        rows.extend(range(proposal.row, proposal.row + count))
        samplings.extend([proposal.sequence.sampling] * count)
    logits = output.logits
    if len(rows) < len(logits):
        logits = logits[indices(rows, logits.device)]
    return warp_each(logits, samplings), starts


def draw_bonus(weights: Tensor, p: Tensor, proposals: Sequence[Proposal]) -> list[int]:
    """Each sequence's last token, drawn from weights [n, vocab].

    From p [n, vocab] instead where a rejection left no mass at all, which takes rounding: a
    rejected token has p < q, so some other has p > q.
    """
    lost = weights.sum(-1, keepdim=True) <= 0.0
    draws = [proposal.sequence.rng.random() for proposal in proposals]
    return draw(torch.where(lost, p, weights), draws)
