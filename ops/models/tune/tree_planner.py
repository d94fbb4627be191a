"""Which static tree is worth its cost: Sequoia's question (arXiv 2402.12374), from measured ranks.

A drafter's ranks for one answer are an integer array [positions, levels]: at a root, how many
tokens the drafter preferred to the answer's own token at each level, given the answer's tokens
above it. They say of any static tree what each step would have accepted.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.torch_engine.trees.shape import RankPath

Ranks = NDArray[np.int64]
PRIOR = 16.0
"""Weight, in visits, of a depth's rates against those of a path with few visits."""
ROUNDS = 3
"""A tree decides at which positions steps begin, and these which tree is best."""


@dataclass(frozen=True)
class PlannedTree:
    """paths: its nodes, the most valuable first. tokens_per_step: with the bonus token, of the
    recorded answers. seconds: of a step."""

    paths: tuple[RankPath, ...]
    tokens_per_step: float
    seconds: float

    @property
    def depth(self) -> int:
        """Levels that have to be drafted."""
        return max(map(len, self.paths))

    @property
    def tokens_per_s(self) -> float:
        """What the tree is chosen by."""
        return self.tokens_per_step / self.seconds


class StepCost:
    """Seconds of a step by a tree's depth and nodes, between measured numbers of nodes linear."""

    def __init__(self, measured: Mapping[tuple[int, int], float]) -> None:
        """measured: seconds by (depth, nodes); every depth needs one at least."""
        self._points: dict[int, list[tuple[int, float]]] = {}
        for (depth, nodes), seconds in sorted(measured.items()):
            self._points.setdefault(depth, []).append((nodes, seconds))

    @property
    def depths(self) -> list[int]:
        """The depths that were measured."""
        return list(self._points)

    @property
    def most_nodes(self) -> int:
        """The largest tree that was measured."""
        return max(nodes for points in self._points.values() for nodes, _ in points)

    def seconds(self, depth: int, nodes: int) -> float:
        """Of one step; raises KeyError for a depth that was not measured."""
        known, seconds = zip(*self._points[depth], strict=True)
        return float(np.interp(nodes, known, seconds))


class PathRates:
    """How likely each child of a path is to be accepted, from the ranks at some roots.

    A path seen often speaks for itself, one seen seldom for its depth (PRIOR).
    """

    def __init__(self, roots: Iterable[Sequence[int]], ranks: int) -> None:
        """roots: ranks by level; ranks: children considered under one node."""
        self._ranks = ranks
        self._visits: Counter[RankPath] = Counter()
        for row in roots:
            path: RankPath = ()
            self._visits[path] += 1
            for rank in row:
                if rank >= ranks:
                    break
                path = (*path, rank)
                self._visits[path] += 1
        self._by_depth = self._marginals()

    def children(self, path: RankPath) -> list[float]:
        """The chance of each rank below an accepted path."""
        visits, depth = self._visits[path], len(path)
        return [
            (self._visits[*path, rank] + PRIOR * self._marginal(depth, rank)) / (visits + PRIOR)
            for rank in range(self._ranks)
        ]

    def per_rank(self) -> list[list[float]]:
        """By depth and rank: the share of steps that got to the depth and accepted the rank."""
        depths = max(map(len, self._visits), default=0)
        return [[self._marginal(d, r) for r in range(self._ranks)] for d in range(depths)]

    def _marginal(self, depth: int, rank: int) -> float:
        total, by_rank = self._by_depth.get(depth, (0, Counter()))
        return by_rank[rank] / total if total else 0.0

    def _marginals(self) -> dict[int, tuple[int, Counter[int]]]:
        reached: Counter[int] = Counter()
        accepted: dict[int, Counter[int]] = {}
        for path, visits in self._visits.items():
            reached[len(path)] += visits
            if path:
                accepted.setdefault(len(path) - 1, Counter())[path[-1]] += visits
        return {depth: (reached[depth], counts) for depth, counts in accepted.items()}


def best_nodes(
    children: Callable[[RankPath], Sequence[float]], most: int, depth: int
) -> list[tuple[RankPath, float]]:
    """The `most` likeliest nodes no deeper than `depth`, and each one's chance to be accepted.

    Of them the first n are the tree of n nodes with the largest expected acceptance, for every n:
    that is the sum of its nodes' chances, and none is likelier than its parent, so that the n
    likeliest are connected. Sequoia's dynamic programme finds the same trees.
    children: the chance of each child of a path once the path is accepted, at most 1.
    """
    found: list[tuple[RankPath, float]] = []
    queue = [(0.0, 0, RankPath(), 1.0)]
    while queue and len(found) <= most:
        _, _, path, value = heapq.heappop(queue)
        found.append((path, value))
        if len(path) < depth:
            for rank, chance in enumerate(children(path)):
                below = (*path, rank)
                heapq.heappush(queue, (-value * chance, len(below), below, value * chance))
    return found[1 : most + 1]


def replay(paths: Iterable[RankPath], answers: Iterable[Ranks]) -> list[list[int]]:
    """The roots at which decoding with a tree begins its steps, for every answer."""
    nodes, begun = set(paths), []
    for ranks in answers:
        rows, at, roots = ranks.tolist(), 0, []
        while at < len(rows):
            roots.append(at)
            accepted, path = 0, RankPath()
            for rank in rows[at]:
                path = (*path, rank)
                if path not in nodes:
                    break
                accepted += 1
            at += accepted + 1
        begun.append(roots)
    return begun


def tokens_per_step(paths: Iterable[RankPath], answers: Sequence[Ranks]) -> float:
    """Tokens emitted per step, with the bonus token, over all answers."""
    steps = sum(map(len, replay(paths, answers)))
    return sum(map(len, answers)) / steps


def plan_tree(answers: Sequence[Ranks], cost: StepCost, ranks: int) -> list[PlannedTree]:
    """Return the fastest tree of each measured depth, the fastest first.

    ranks: children considered under one node. Raises ValueError without recorded positions.
    """
    if not any(map(len, answers)):
        raise ValueError("no position of any answer is recorded: give longer answers")
    planned = [_plan_depth(answers, cost, ranks, depth) for depth in cost.depths]
    return sorted(planned, key=lambda tree: -tree.tokens_per_s)


def _plan_depth(answers: Sequence[Ranks], cost: StepCost, ranks: int, depth: int) -> PlannedTree:
    roots = [list(range(len(answer))) for answer in answers]
    planned = []
    for _ in range(ROUNDS):
        begun = [a[at].tolist() for a, own in zip(answers, roots, strict=True) for at in own]
        nodes = best_nodes(PathRates(begun, ranks).children, cost.most_nodes, depth)
        expected = 1.0 + np.cumsum([value for _, value in nodes])
        seconds = np.array([cost.seconds(depth, count) for count in range(1, len(nodes) + 1)])
        count = int(np.argmax(expected / seconds)) + 1
        paths = tuple(path for path, _ in nodes[:count])
        roots = replay(paths, answers)
        tokens = sum(map(len, answers)) / sum(map(len, roots))
        planned.append(PlannedTree(paths, tokens, cost.seconds(depth, count)))
    return max(planned, key=lambda tree: tree.tokens_per_s)
