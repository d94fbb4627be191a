"""A token tree as data, and the path that verification kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from workers.torch_engine.models.draft_logits import DraftLogits

ROOT = -1
"""Parent index of a tree's first level: the last token the sequence has emitted."""
DROPPED = -2
"""Marks a place in a drafter's cache whose node is no longer in the tree."""


@dataclass(slots=True, eq=False)
class TokenTree:
    """Tokens under one root; nodes are numbered parents first.

    tokens, parents, depths: per node; a first-level node has parent ROOT and depth 0.
    q: [vocab] float32 that the node was drawn from, the drafter's distribution after the request's
    temperature, top-k and top-p; None for a chosen node.
    logits: the drafter's raw logits at the node's parent, one row, where the drafter has any.
    values: per node the sum of log q along its path, 0.0 where the drafting does not compute it.
    frontier: nodes (or ROOT) that the drafter may still extend.
    cached: nodes that the drafter has read, in the order of their slots in its own cache; DROPPED
    for those that `keep` let go.
    is_chain: whether every node follows the one before it.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    q: list[Tensor | None] = field(default_factory=list)
    logits: list[DraftLogits | None] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    frontier: list[int] = field(default_factory=lambda: [ROOT])
    cached: list[int] = field(default_factory=list)
    is_chain: bool = field(default=True, init=False)

    def __len__(self) -> int:
        return len(self.tokens)

    def add(
        self,
        token: int,
        parent: int,
        *,
        q: Tensor | None = None,
        logits: DraftLogits | None = None,
        value: float = 0.0,
    ) -> int:
        """Append a node and return its index; a node with `q` was sampled from it."""
        self.is_chain = self.is_chain and parent == len(self.tokens) - 1
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(0 if parent == ROOT else self.depths[parent] + 1)
        self.q.append(q)
        self.logits.append(logits)
        self.values.append(value)
        return len(self.tokens) - 1

    def keep(self, nodes: Sequence[int]) -> None:
        """Drop all nodes but these (ascending, with their ancestors) and number them anew."""
        place = {node: index for index, node in enumerate(nodes)} | {ROOT: ROOT}
        self.parents = [place[self.parents[node]] for node in nodes]
        for name in ("tokens", "depths", "q", "logits", "values"):
            column = getattr(self, name)
            setattr(self, name, [column[node] for node in nodes])
        self.frontier = [place[node] for node in self.frontier if node in place]
        self.cached = [place.get(node, DROPPED) for node in self.cached]
        self.is_chain = all(parent == index - 1 for index, parent in enumerate(self.parents))

    def clear(self) -> None:
        """Drop all nodes, even of a malformed tree."""
        self.tokens, self.parents, self.depths = [], [], []
        self.q, self.logits, self.values = [], [], []
        self.frontier, self.cached, self.is_chain = [ROOT], [], True

    def children(self, node: int) -> list[int]:
        """Return the nodes under `node`, in the order they were added."""
        first = node + 1
        return [i for i in range(first, len(self.parents)) if self.parents[i] == node]

    def child(self, node: int, token: int) -> int | None:
        """Return the first node under `node` with this token; None without one."""
        return next((child for child in self.children(node) if self.tokens[child] == token), None)

    def follow(self, tokens: Sequence[int]) -> list[int]:
        """Return the nodes of these tokens, from the first level down as far as there are any."""
        node, found = ROOT, list[int]()
        for token in tokens:
            child = self.child(node, token)
            if child is None:
                break
            node = child
            found.append(node)
        return found

    def path_to(self, node: int) -> tuple[int, ...]:
        """Return the nodes from the first level down to `node`; none for ROOT."""
        path = list[int]()
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return tuple(reversed(path))

    @property
    def drafted_levels(self) -> int:
        """The tree's depth in tokens."""
        return max(self.depths, default=-1) + 1


@dataclass(frozen=True, slots=True)
class Path:
    """The result of verification: accepted nodes from the first level down, then the bonus
    token.

    The bonus is the target's own token: the correction after a rejection, or the next token
    after a fully accepted path.
    """

    nodes: tuple[int, ...]
    bonus: int
