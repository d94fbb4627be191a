"""Which part of a wide tree a rule drafts and verifies. Pure functions but for the two rules that
learn while they draft."""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np

from ops.rules.wide_tree import ROOT, Draft, WideTree
from ops.tune.tree_planner import best_nodes
from workers.drafting.confidence import Confidence
from workers.torch_engine.trees.shape import RankPath

GAMMA = 0.2
"""AdaEDL's factor of the entropy."""
WANTED, STEP, KEPT_RATE, KEPT_THRESHOLD = 0.9, 0.01, 0.5, 0.9
"""AdaEDL's acceptance target, its threshold's step, and the two smoothings."""

Pricing = Callable[[Sequence[int], int], float]
"""Seconds of a step by the rows of the drafter's forwards and the nodes that are verified."""


class Rule(Protocol):
    """Drafts step by step, and may learn from what came."""

    def begin(self) -> None:
        """Another answer begins."""
        ...

    def draft(self, tree: WideTree) -> Draft:
        """What is drafted at a position."""
        ...

    def saw(self, tree: WideTree, accepted: int) -> None:
        """So many levels of the last draft, which was at that position, were accepted."""
        ...


class Fixed:
    """A rule without a memory."""

    def __init__(self, draft: Callable[[WideTree], Draft]) -> None:
        self.draft = draft

    def begin(self) -> None:
        """Answers are all alike."""

    def saw(self, tree: WideTree, accepted: int) -> None:
        """Nothing to learn."""


class AdaEdl:
    """A chain until 1 - √(0.2 H) falls below a threshold, H the entropy of the drafter where it
    drafted last; the threshold goes up where fewer than 0.9 of the draft tokens are accepted, and
    down where more are (AdaEDL, arXiv 2410.18351). The token that stops it stays."""

    def __init__(self, threshold: float, most: int) -> None:
        self._threshold, self._most = threshold, most
        self._rate, self._drafted = WANTED, 0

    def begin(self) -> None:
        """The threshold outlives an answer."""

    def draft(self, tree: WideTree) -> Draft:
        """See the class."""
        found = chain(
            tree, self._most, lambda node: self._goes_on(tree.entropies[tree.depths[node]])
        )
        self._drafted = found.size
        return found

    def saw(self, tree: WideTree, accepted: int) -> None:  # noqa: ARG002
        """Move the threshold."""
        if self._drafted:
            rate = accepted / self._drafted
            self._rate = KEPT_RATE * self._rate + (1.0 - KEPT_RATE) * rate
            moved = self._threshold + math.copysign(STEP, WANTED - self._rate)
            self._threshold = KEPT_THRESHOLD * self._threshold + (1.0 - KEPT_THRESHOLD) * moved

    def _goes_on(self, entropy: float) -> bool:
        return 1.0 - math.sqrt(GAMMA * entropy) >= self._threshold


def chain(tree: WideTree, most: int, goes_on: Callable[[int], bool] = lambda _: True) -> Draft:
    """The drafter's favourites, one after the other, until one after which it does not go on."""
    nodes, at = list[int](), ROOT
    while len(nodes) < most and (child := tree.child(at, 0)) is not None:
        nodes.append(child)
        at = child
        if not goes_on(child):
            break
    return _draft(tree, nodes, (1,) * len(nodes))


def eagle2(
    tree: WideTree,
    nodes: int,
    k: int,
    depth: int,
    goes_on: Callable[[Sequence[int], Sequence[int]], bool] = lambda _, __: True,
) -> Draft:
    """Of every level the k best nodes get their k best children, and the best of all stay
    (EAGLE-2, arXiv 2406.16858). goes_on: whether the next frontier is read as well, after so many
    reads."""
    grown, reads, frontier = list[int](), list[int](), [ROOT]
    for level in tree.levels[:depth]:
        reads.append(len(frontier))
        above = set(frontier)
        below = [n for n in level if tree.parents[n] in above and tree.ranks[n] < k][:nodes]
        grown += below
        frontier = below[:k]
        if len(reads) == depth or not frontier or not goes_on(frontier, reads):
            break
    return _draft(tree, _best(tree, grown, nodes), reads)


def opt_tree(tree: WideTree, nodes: int, delta: float, depth: int) -> Draft:
    """Level by level the best nodes' best children, until a level adds no more than delta to E, the
    probabilities of the best nodes of all levels (OPT-Tree, arXiv 2406.17276)."""
    best, reads, frontier, before = list[int](), list[int](), {ROOT}, 0.0
    for level in tree.levels[:depth]:
        reads.append(len(frontier))
        below = [node for node in level if tree.parents[node] in frontier][:nodes]
        best = _best(tree, [*best, *below], nodes)
        expected = sum(map(tree.probability, best))
        if expected - before <= delta:
            break
        before, frontier = expected, set(below)
    return _draft(tree, best, reads)


def dyspec(tree: WideTree, nodes: int, depth: int) -> Draft:
    """The most valuable slot gets a token, with a slot below it and one beside it, where what is
    left of the drafter's distribution counts (DySpec, arXiv 2410.11744). It draws tokens; here a
    slot gets the likeliest that is left, and its order of slots is what is judged."""
    slots = [(-1.0, 0, ROOT, 0)] if depth else []
    taken = list[int]()
    while slots and len(taken) < nodes:
        left, level, parent, rank = heapq.heappop(slots)
        node = tree.child(parent, rank)
        if node is None:
            continue
        taken.append(node)
        heapq.heappush(slots, (left + tree.probability(node), level, parent, rank + 1))
        if level + 1 < depth:
            heapq.heappush(slots, (-tree.probability(node), level + 1, node, 0))
    levels = 1 + max((tree.depths[node] for node in taken), default=-1)
    parents = Counter(tree.depths[p] if p != ROOT else -1 for p in {tree.parents[n] for n in taken})
    return _draft(tree, sorted(taken), [parents[level - 1] for level in range(levels)])


def static(tree: WideTree, paths: Sequence[RankPath], expected: float | None = None) -> Draft:
    """The same shape everywhere; expected: of its accepted tokens, where the drafter's own word is
    not what it goes by."""
    at: dict[RankPath, int | None] = {(): ROOT}
    for path in sorted(paths, key=len):
        above = at[path[:-1]]
        at[path] = None if above is None else tree.child(above, path[-1])
    # a row has no room for drafts below the levels that an answer may still have
    known = [path for path in paths if len(path) <= len(tree.levels)]
    nodes = sorted(node for path in known if (node := at[path]) is not None)
    said = sum(map(tree.probability, nodes)) if expected is None else expected
    return Draft(nodes, shape_reads(known), len(known), said)


def shape_reads(paths: Iterable[RankPath]) -> list[int]:
    """Rows of each of the drafter's forwards for a tree of these nodes."""
    parents = Counter(map(len, {path[:-1] for path in paths}))
    return [parents[level] for level in range(len(parents))]


def hindsight(tree: WideTree, most: int) -> Draft:
    """Just what comes: no rule knows it, and none drafts better."""
    nodes = [node for node, came in enumerate(tree.came) if came][:most]
    return Draft(nodes, (1,) * len(nodes), len(nodes), float(len(nodes)))


def rank_rates(trees: Iterable[WideTree], ranks: int) -> list[float]:
    """How often the child of each rank comes where its parent did, at all depths alike."""
    reached, came = 0, Counter[int]()
    for tree in trees:
        path = [node for node, comes in enumerate(tree.came) if comes]
        came.update(tree.ranks[node] for node in path)
        read = set(tree.parents)
        reached += sum(at in read for at in (ROOT, *path))
    return [came[rank] / max(1, reached) for rank in range(ranks)]


def sequoia(
    rates: Sequence[float], most: int, depth: int, seconds: Pricing
) -> tuple[list[RankPath], float]:
    """The static tree that should emit the most tokens a second, and its expected accepted tokens,
    where the child of a rank comes with that rank's rate (Sequoia, arXiv 2402.12374).

    The trees of its dynamic programme, for every size and depth bound, are the likeliest nodes.
    """
    best, shape, promised = 1.0 / seconds((), 0), list[RankPath](), 0.0
    for deepest in range(1, depth + 1):
        found = best_nodes(lambda _: rates, most, deepest)
        expected = np.cumsum([chance for _, chance in found])
        for size, accepted in enumerate(expected.tolist(), 1):
            paths = [path for path, _ in found[:size]]
            rate = (1.0 + accepted) / seconds(shape_reads(paths), size)
            if rate > best:
                best, shape, promised = rate, paths, accepted
    return shape, promised


def trusting(confidence: Confidence, trees: Iterable[WideTree]) -> None:
    """Let the drafter's own word be calibrated on the chains of these trees."""
    for tree in trees:
        for node in chain(tree, len(tree.levels)).nodes:
            came = tree.came[node]
            confidence.saw(tree.values[node], tree.depths[node], greedy=True, came=came)
            if not came:
                break


def specdec(tree: WideTree, risk: float, confidence: Confidence, most: int) -> Draft:
    """A chain until some of it is rejected with a probability above `risk` (SpecDec++, arXiv
    2405.19715), by the drafter's own calibrated word: nobody has trained its head here."""
    survival = {
        node: confidence.survival(tree.values[node], tree.depths[node], greedy=True)
        for node in chain(tree, most).nodes
    }
    found = chain(tree, most, lambda node: 1.0 - survival[node] <= risk)
    return Draft(found.nodes, found.reads, found.size, sum(survival[n] for n in found.nodes))


def _best(tree: WideTree, nodes: Sequence[int], most: int) -> list[int]:
    """The most valuable, of equals the shallower; parents first."""
    return sorted(sorted(nodes, key=lambda node: (-tree.values[node], node))[:most])


def _draft(tree: WideTree, nodes: Sequence[int], reads: Sequence[int]) -> Draft:
    return Draft(nodes, reads, len(nodes), sum(map(tree.probability, nodes)))
