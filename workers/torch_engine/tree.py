"""A step's draft for one sequence, as a token tree, and the path that was kept of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from workers.torch_engine.parts import Plan
    from workers.torch_engine.sequence import Sequence

ROOT = -1
"""Parent index of a tree's first level: the last token the sequence has emitted."""


@dataclass(slots=True, eq=False)
class Proposal:
    """A token tree under one sequence's last token; nodes are numbered parents first.

    tokens, parents, depths: per node; a first-level node has parent ROOT and depth 0.
    sampled: drawn from the drafter's warped distribution (then `q` holds it), else chosen.
    q: [vocab] float32 the node was drawn from, after the request's temperature, top-k and top-p.
    logits: [vocab] the drafter's raw logits at the node's parent, where the drafter has any.
    frontier: nodes (or ROOT) that the drafter may still extend.
    is_chain: whether every node follows the one before it.
    limit: greatest number of levels; a row has room for 64 nodes beyond the context.
    chunk: committed tokens to read in this step, where more are pending (a long prompt); None
    reads them all.
    row: the target's logit row of the root; node i has row + 1 + i.
    """

    sequence: Sequence
    plan: Plan
    limit: int
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    q: list[Tensor | None] = field(default_factory=list)
    logits: list[Tensor | None] = field(default_factory=list)
    frontier: list[int] = field(default_factory=lambda: [ROOT])
    is_chain: bool = field(default=True, init=False)
    chunk: int | None = None
    row: int = 0

    def __len__(self) -> int:
        return len(self.tokens)

    def add(
        self, token: int, parent: int, *, q: Tensor | None = None, logits: Tensor | None = None
    ) -> int:
        """Append a node and return its index; a node with `q` was sampled from it."""
        self.is_chain = self.is_chain and parent == len(self.tokens) - 1
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(0 if parent == ROOT else self.depths[parent] + 1)
        self.sampled.append(q is not None)
        self.q.append(q)
        self.logits.append(logits)
        return len(self.tokens) - 1

    def children(self, node: int) -> list[int]:
        """The nodes under `node`, in the order they were added."""
        first = node + 1
        return [i for i in range(first, len(self.parents)) if self.parents[i] == node]

    @property
    def drafted_levels(self) -> int:
        """Depth of the tree in tokens."""
        return max(self.depths, default=-1) + 1


@dataclass(frozen=True, slots=True)
class Path:
    """What verification kept: accepted nodes from the first level down, then the bonus token.

    The bonus is the target's own token: the correction after a rejection, or the one more that a
    fully accepted path yields.
    """

    nodes: tuple[int, ...]
    bonus: int
