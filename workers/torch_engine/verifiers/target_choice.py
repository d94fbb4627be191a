"""Paths of draft tokens that the target chooses: a verifier, and what all verifiers share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Generic, TypeVar

import torch
from torch import Tensor

from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.distribution import draw, draw_at, uniforms, warp_each
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.models.transfer import indices
from workers.torch_engine.registry import register
from workers.torch_engine.tree import ROOT, Path

Told = TypeVar("Told")
Node = tuple[Proposal, int]
"""A node of a proposal, or ROOT."""


@dataclass(eq=False, slots=True)
class Descent(Generic[Told]):
    """One tree's descent: the accepted nodes, and what was told of the last one."""

    proposal: Proposal
    kept: list[int] = field(default_factory=list)
    told: Told = field(init=False)

    @property
    def node(self) -> int:
        """The last accepted node, or ROOT."""
        return self.kept[-1] if self.kept else ROOT


def descend(
    proposals: Sequence[Proposal],
    output: TargetOutput,
    tell: Callable[[Tensor, Sequence[Node]], Sequence[Told]],
    below: Callable[[Proposal, int, Told], int | None],
) -> Iterator[tuple[list[Descent[Told]], Tensor]]:
    """Return all trees' finished descents, and p [n, vocab] float32 at their ends.

    tell: computes what `below` needs from p [nodes, vocab]. below: returns the accepted child of
    a node, or None. Only reached nodes are warped, a level of all trees at once: a row of 49,152
    tokens takes 0.1 to 0.4 ms on a CPU.
    """
    going = [Descent[Told](proposal) for proposal in proposals]
    while going:
        nodes = [(one.proposal, one.node) for one in going]
        p, ends = warped(nodes, output), list[int]()
        for row, (one, told) in enumerate(zip(going, tell(p, nodes), strict=True)):
            one.told = told
            child = below(one.proposal, one.node, told)
            if child is None:
                ends.append(row)
            else:
                one.kept.append(child)
        if ends:
            there = p if len(ends) == len(p) else p[indices(ends, p.device)]
            yield [going[row] for row in ends], there
        going = [one for row, one in enumerate(going) if row not in ends]


def warped_rows(proposals: Sequence[Proposal], output: TargetOutput) -> tuple[Tensor, list[int]]:
    """Return warped p [rows, vocab] float32 at every root and node, and where each proposal's
    rows begin."""
    sizes = [len(proposal) + 1 for proposal in proposals]
    nodes = [(proposal, node) for proposal in proposals for node in range(ROOT, len(proposal))]
    return warped(nodes, output), [0, *accumulate(sizes)][:-1]


def warped(nodes: Sequence[Node], output: TargetOutput) -> Tensor:
    """Return p [n, vocab] float32 at these nodes, warped by each request's sampling."""
    rows = [proposal.row + 1 + node for proposal, node in nodes]
    logits = output.logits
    if rows != [*range(len(logits))]:
        logits = logits[indices(rows, logits.device)]
    return warp_each(logits, [proposal.sequence.sampling for proposal, _ in nodes])


def match_greedy(proposal: Proposal, output: TargetOutput) -> Path:
    """Return the longest path whose every token is the target's argmax at its parent."""
    choices = output.best[proposal.row : proposal.row + len(proposal) + 1]
    node, kept = ROOT, list[int]()
    while (child := proposal.child(node, choices[node + 1])) is not None:
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


class LosslessVerifier(ABC):
    """Base of verifiers whose tokens are distributed as the target's, by `_sample`."""

    needs_distribution = False
    takes_trees = True
    takes_sampled = True

    def __init__(self, _context: BuildContext) -> None:
        super().__init__()

    def verify(self, proposals: Sequence[Proposal], output: TargetOutput) -> list[Path]:
        """Return one path per proposal. The target chooses the tokens of proposals at temperature
        0 or with a seed.

        Under a seed it chooses a token at every node, by its warped distribution and the noise of
        the token's place in the response alone: whatever was drafted, the response is the same.
        """
        paths, sampled = split_greedy(proposals, output)
        seeded = [p for p in sampled if p.sequence.sampling.seed is not None]
        paths |= follow_choices(seeded, output, _under_seeds)
        if unseeded := [p for p in sampled if p.sequence.sampling.seed is None]:
            paths |= self._sample(unseeded, output)
        return [paths[proposal.sequence.id] for proposal in proposals]

    @abstractmethod
    def _sample(self, proposals: list[Proposal], output: TargetOutput) -> dict[int, Path]:
        """Return the paths of proposals above temperature 0 without a seed, by sequence id."""


def follow_choices(
    proposals: Sequence[Proposal],
    output: TargetOutput,
    choose: Callable[[Tensor, Sequence[Node]], Sequence[int]],
) -> dict[int, Path]:
    """Return paths of draft tokens that the target chooses, by sequence id. choose: returns a
    token for each node by p [nodes, vocab]."""
    return {
        one.proposal.sequence.id: Path(tuple(one.kept), one.told)
        for ended, _ in descend(proposals, output, choose, Proposal.child)
        for one in ended
    }


def _under_seeds(p: Tensor, nodes: Sequence[Node]) -> list[int]:
    return draw_at(p, [proposal.place(node) for proposal, node in nodes])


def draw_bonus(weights: Tensor, p: Tensor, proposals: Sequence[Proposal]) -> list[int]:
    """Draw each sequence's last token from weights [n, vocab].

    From p [n, vocab] instead where a rejection left no mass at all, which takes rounding: a
    rejected token has p < q, so some other has p > q.
    """
    draws = [proposal.sequence.rng.random() for proposal in proposals]
    if weights is not p:
        weights = torch.where(weights.sum(-1, keepdim=True) <= 0.0, p, weights)
    return draw(weights, draws)


def ended(
    proposals: Sequence[Proposal], kept: Sequence[tuple[int, ...]], p: Tensor, starts: Sequence[int]
) -> dict[int, Path]:
    """Return paths of the kept nodes, by sequence id, with a token drawn at the end of each. p
    [rows, vocab]: at all roots and nodes, where each proposal's rows begin at `starts`."""
    ends = [s + 1 + (path[-1] if path else ROOT) for s, path in zip(starts, kept, strict=True)]
    last = p[ends]
    bonus = draw_bonus(last, last, proposals)
    return {
        proposal.sequence.id: Path(path, token)
        for proposal, path, token in zip(proposals, kept, bonus, strict=True)
    }


@register("verifier", "target_choice")
class TargetChoice(LosslessVerifier):
    """Let the target choose a token at every node, and accept the path that agrees.

    The target takes the argmax at temperature 0 and draws from the warped p above it, so the
    emitted tokens are its own: lossless.
    """

    def _sample(self, proposals: list[Proposal], output: TargetOutput) -> dict[int, Path]:
        draws = {p.sequence.id: uniforms(len(p) + 1, p.sequence.rng) for p in proposals}

        def choose(p: Tensor, nodes: Sequence[Node]) -> list[int]:
            return draw(p, [draws[proposal.sequence.id][node + 1] for proposal, node in nodes])

        return follow_choices(proposals, output, choose)
