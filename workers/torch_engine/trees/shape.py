"""A token tree's shape before it has tokens: which child of which node, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

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
