"""What a drafter would say at a position of a known answer, wider than it would be drafted."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

ROOT = -1


@dataclass(slots=True, eq=False)
class WideTree:
    """Nodes numbered level by level, parents first; of each its

    parent, ROOT on the first level; rank among all children that its parent could have, 0 the
    drafter's favourite; depth, from 0; value: the sum of the drafter's log-probabilities along its
    path; and whether it came: it and all above it are what the answer says.

    entropies: by depth, in nats, of the drafter's distribution behind the favourites above. levels:
    by depth the nodes, the most valuable first.
    """

    parents: Sequence[int] = ()
    ranks: Sequence[int] = ()
    depths: Sequence[int] = ()
    values: Sequence[float] = ()
    entropies: Sequence[float] = ()
    came: Sequence[bool] = ()
    levels: list[list[int]] = field(init=False)
    _children: dict[tuple[int, int], int] = field(init=False)

    def __post_init__(self) -> None:
        self.levels = [[] for _ in range(max(self.depths, default=-1) + 1)]
        for node, depth in enumerate(self.depths):
            self.levels[depth].append(node)
        for level in self.levels:
            level.sort(key=lambda node: -self.values[node])
        self._children = {
            place: node for node, place in enumerate(zip(self.parents, self.ranks, strict=True))
        }

    def __len__(self) -> int:
        return len(self.parents)

    def known(self, tokens: Sequence[int], said: Sequence[int]) -> "WideTree":
        """The same tree, of whose nodes' tokens those came that the answer says."""
        came = list[bool]()
        nodes = zip(tokens, self.parents, self.depths, strict=True)
        for token, parent, depth in nodes:
            above = parent == ROOT or came[parent]
            came.append(above and depth < len(said) and token == said[depth])
        columns = self.parents, self.ranks, self.depths, self.values
        return WideTree(*columns, self.entropies, came)

    def child(self, parent: int, rank: int) -> int | None:
        """The parent's child of this rank, where it was recorded."""
        return self._children.get((parent, rank))

    def probability(self, node: int) -> float:
        """Of a node and all above it, by the drafter's own word; 1 of the root."""
        return 1.0 if node == ROOT else math.exp(self.values[node])

    def accepted(self, nodes: Collection[int]) -> int:
        """How many levels of a connected part would be accepted."""
        return sum(self.came[node] for node in nodes)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a rule makes of a wide tree.

    nodes: those that the target verifies, as far as they were recorded; size: how many there are.
    reads: rows of each of the drafter's forwards, as many as levels were drafted. expected:
    accepted tokens by what the rule goes by.
    """

    nodes: Sequence[int]
    reads: Sequence[int]
    size: int
    expected: float
