"""A tree with the same shape in every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.distribution import draw_distinct, uniforms, warp_each
from workers.torch_engine.interfaces import Proposal
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.models.kv_pool import TREE_ROOM
from workers.torch_engine.registry import register
from workers.torch_engine.tree import ROOT
from workers.torch_engine.tree_growth import rows_of

RankPath = tuple[int, ...]
"""A node as the ranks of its ancestors and itself among their siblings; rank 0 is the best."""


@dataclass(frozen=True, slots=True)
class ShapeLevel:
    """The nodes of one depth.

    parents: per node its parent's place among the level above's extended nodes. ranks: per node
    its rank among all children that its parent could have. extended: the nodes that have children.
    width: the greatest rank and one more.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    extended: tuple[int, ...]
    width: int


def shape_levels(paths: Sequence[RankPath]) -> list[ShapeLevel]:
    """Return the levels of a tree given by its nodes. Raises ValueError for nodes that form no
    tree."""
    nodes = set(paths)
    if len(nodes) < len(paths):
        raise ValueError("a path is named twice")
    for path in nodes:
        if len(path) > 1 and path[:-1] not in nodes:
            raise ValueError(f"path {format_path(path)} has no parent: add it")
    levels, above = list[ShapeLevel](), [RankPath()]
    while below := sorted(path for path in nodes if len(path) == len(levels) + 1):
        extended = {path[:-1] for path in nodes if len(path) == len(levels) + 2}
        place = {path: index for index, path in enumerate(above)}
        ranks = tuple(path[-1] for path in below)
        levels.append(
            ShapeLevel(
                parents=tuple(place[path[:-1]] for path in below),
                ranks=ranks,
                extended=tuple(i for i, path in enumerate(below) if path in extended),
                width=max(ranks) + 1,
            )
        )
        above = [path for path in below if path in extended]
    return levels


def paths_of_widths(widths: Sequence[int]) -> list[RankPath]:
    """Return the tree whose nodes of depth i all have the `widths[i]` best children."""
    return [
        path
        for depth in range(1, len(widths) + 1)
        for path in product(*(range(width) for width in widths[:depth]))
    ]


def parse_paths(text: str) -> list[RankPath]:
    """Read paths from text such as "0 1 0.0 0.1". Raises ValueError for anything else."""
    try:
        paths = [tuple(map(int, path.split("."))) for path in text.split()]
    except ValueError as error:
        raise ValueError(f"{text!r} is not a list of paths such as '0 1 0.0 0.1'") from error
    if any(rank < 0 for path in paths for rank in path):
        raise ValueError(f"{text!r}: ranks are 0 or more")
    return paths


def format_path(path: RankPath) -> str:
    """Return paths as text that `parse_paths` reads."""
    return ".".join(map(str, path))


@register("tree", "static")
class Static:
    """Grow a shape given by widths (SpecInfer, arXiv 2305.09781) or by paths (Medusa,
    2401.10774).

    widths: nodes of depth i have the widths[i] best children. paths: the nodes, each as the ranks
    along its path, "0 1 0.0 0.1": the two best first tokens and the two best after the best. The
    stop bounds the depth.
    sample: above temperature 0 children are drawn from q, each without the siblings drawn before
    it, where otherwise they are the best and so chosen; a child's rank is then the order of draws.
    """

    def __init__(
        self,
        context: BuildContext,
        *,
        widths: Sequence[int] = (),
        paths: str = "",
        sample: bool = False,
    ) -> None:
        nodes = _nodes(widths, paths)
        if len(nodes) > TREE_ROOM:
            raise ValueError(
                f"tree 'static': {len(nodes)} nodes are more than the {TREE_ROOM} that a step "
                "has room for"
            )
        try:
            self._levels = shape_levels(nodes)
        except ValueError as error:
            raise ValueError(f"tree 'static': {error}") from error
        if (widest := max(level.width for level in self._levels)) > context.vocab:
            raise ValueError(
                f"tree 'static': rank {widest - 1} does not exist in a vocabulary of "
                f"{context.vocab}"
            )
        self.samples = sample

    def expand(self, proposals: Sequence[Proposal], logits: DraftLogits) -> None:
        """Add the shape's next level; empties the frontier at its last one."""
        rows = rows_of(proposals, logits)
        drawn = [self.samples and p.sequence.sampling.temperature > 0.0 for p in proposals]
        chosen = [i for i, draws in enumerate(drawn) if not draws]
        if chosen:
            self._choose([proposals[i] for i in chosen], [rows[i] for i in chosen], logits)
        if len(chosen) < len(proposals):
            sampled = [i for i, draws in enumerate(drawn) if draws]
            self._draw([proposals[i] for i in sampled], [rows[i] for i in sampled], logits)

    def finish(self, proposals: Sequence[Proposal]) -> None:
        """Keep all nodes."""

    def _choose(
        self, proposals: list[Proposal], rows: list[Sequence[int]], logits: DraftLogits
    ) -> None:
        levels = [self._level(proposal) for proposal in proposals]
        best = logits.best_tokens(max(level.width for level in levels))
        raw = logits.unbind()
        for proposal, level, own in zip(proposals, levels, rows, strict=True):
            frontier = proposal.frontier
            added = [
                proposal.add(best[own[place]][rank], frontier[place], logits=raw[own[place]])
                for place, rank in zip(level.parents, level.ranks, strict=True)
            ]
            proposal.frontier = [added[node] for node in level.extended]

    def _draw(
        self, proposals: list[Proposal], rows: list[Sequence[int]], logits: DraftLogits
    ) -> None:
        levels = [self._level(proposal) for proposal in proposals]
        wanted = [row for own in rows for row in own]
        owners = [p for p, own in zip(proposals, rows, strict=True) for _ in own]
        q = warp_each(logits.rows(wanted).whole(), [p.sequence.sampling for p in owners])
        width = max(level.width for level in levels)
        draws = [[u for p in owners for u in uniforms(1, p.sequence.rng)] for _ in range(width)]
        ranked = draw_distinct(q, draws)
        raw, start = logits.unbind(), 0
        for proposal, level, own in zip(proposals, levels, rows, strict=True):
            frontier = proposal.frontier
            added = []
            for place, rank in zip(level.parents, level.ranks, strict=True):
                tokens, given = ranked[rank]
                at = start + place
                row = raw[own[place]]
                added.append(proposal.add(tokens[at], frontier[place], q=given[at], logits=row))
            proposal.frontier = [added[node] for node in level.extended]
            start += len(own)

    def _level(self, proposal: Proposal) -> ShapeLevel:
        first = proposal.frontier[0]
        return self._levels[0 if first == ROOT else proposal.depths[first] + 1]


def _nodes(widths: Sequence[int], paths: str) -> list[RankPath]:
    if bool(widths) == bool(paths):
        raise ValueError("tree 'static': give either widths, such as [3, 2, 1], or paths")
    if any(width < 1 or width != int(width) for width in widths):
        raise ValueError(f"tree 'static': widths are whole numbers above 0, not {list(widths)}")
    try:
        return parse_paths(paths) if paths else paths_of_widths([int(width) for width in widths])
    except ValueError as error:
        raise ValueError(f"tree 'static': {error}") from error
