"""Common parts of verifiers: paths that the target chooses, and the last token's draw."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from workers.torch_engine.distribution import draw
from workers.torch_engine.noise import draw_at
from workers.torch_engine.parts import Proposal
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tree import ROOT, Path
from workers.torch_engine.verifiers.descent import Node, descend


def match_greedy(proposal: Proposal, output: TargetOutput) -> Path:
    """Return the longest path whose every token is the target's argmax at its parent."""
    choices = output.best[proposal.row : proposal.row + len(proposal) + 1]
    node, kept = ROOT, list[int]()
    while (child := _chosen(proposal, node, choices[node + 1])) is not None:
        kept.append(child)
        node = child
    return Path(tuple(kept), choices[node + 1])


def split_greedy(
    proposals: Sequence[Proposal], output: TargetOutput
) -> tuple[dict[int, Path], list[Proposal]]:
    """Return the paths of proposals at temperature 0, by sequence id, and the other proposals."""
    greedy = [p for p in proposals if p.sequence.sampling.temperature == 0.0]
    paths = {p.sequence.id: match_greedy(p, output) for p in greedy}
    return paths, [p for p in proposals if p.sequence.sampling.temperature > 0.0]


def choose_or_sample(
    proposals: Sequence[Proposal],
    output: TargetOutput,
    sample: Callable[[list[Proposal], TargetOutput], dict[int, Path]],
) -> list[Path]:
    """Return one path per proposal. The target chooses the tokens of proposals at temperature 0 or
    with a seed; sample: returns the paths of the others, by sequence id.

    Under a seed the target chooses a token at every node, by its warped distribution and the noise
    of the token's place in the answer alone: whatever was drafted, the answer is the same.
    """
    paths, sampled = split_greedy(proposals, output)
    seeded = [p for p in sampled if p.sequence.sampling.seed is not None]
    paths |= follow_choices(seeded, output, _under_seeds)
    if unseeded := [p for p in sampled if p.sequence.sampling.seed is None]:
        paths |= sample(unseeded, output)
    return [paths[proposal.sequence.id] for proposal in proposals]


def follow_choices(
    proposals: Sequence[Proposal],
    output: TargetOutput,
    choose: Callable[[Tensor, Sequence[Node]], Sequence[int]],
) -> dict[int, Path]:
    """Return paths of draft tokens that the target chooses, by sequence id. choose: returns a
    token for each node by p [nodes, vocab]."""
    return {
        one.proposal.sequence.id: Path(tuple(one.kept), one.told[one.node])
        for ended, _ in descend(proposals, output, choose, _chosen)
        for one in ended
    }


def _under_seeds(p: Tensor, nodes: Sequence[Node]) -> list[int]:
    return draw_at(p, [proposal.place(node) for proposal, node in nodes])


def _chosen(proposal: Proposal, node: int, choice: int) -> int | None:
    """Return the child that is the target's choice."""
    return next((c for c in proposal.children(node) if proposal.tokens[c] == choice), None)


def draw_bonus(weights: Tensor, p: Tensor, proposals: Sequence[Proposal]) -> list[int]:
    """Draw each sequence's last token from weights [n, vocab].

    From p [n, vocab] instead where a rejection left no mass at all, which takes rounding: a
    rejected token has p < q, so some other has p > q.
    """
    draws = [proposal.sequence.rng.random() for proposal in proposals]
    if weights is not p:
        weights = torch.where(weights.sum(-1, keepdim=True) <= 0.0, p, weights)
    return draw(weights, draws)
