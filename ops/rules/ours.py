"""The engine's own rule on a wide tree: levels while they pay, then the nodes that pay."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from ops.rules.rules import Pricing, eagle2
from ops.rules.wide_tree import ROOT, Draft, WideTree
from workers.drafting.confidence import Confidence
from workers.drafting.ease import Ease
from workers.drafting.goodput import choose
from workers.torch_engine.drafters.learned import NODES, WIDEST
from workers.torch_engine.drafters.paying import Paying


class Ours:
    """What `adaptive_length` does with one sequence, with the engine's own calibration
    (`Confidence`, `Ease`), stop (`Paying`) and grant (`goodput.choose`).

    Two things are simpler: a first level is always drafted, and the tokens that a level has to
    bring are those of its seconds at the tokens a second so far.
    """

    def __init__(self, seconds: Pricing, most: int) -> None:
        self._seconds, self._most = seconds, most
        self._confidence, self._ease = Confidence(), Ease()
        self._stop = Paying(self._confidence, self._ease)
        self._answer = 0
        self._emitted, self._spent = 1.0, seconds((), 0)
        self._grown, self._survival = list[int](), dict[int, float]()

    def begin(self) -> None:
        """What was learned stays, but for how easy the answer is."""
        self._ease.forget(self._answer)
        self._answer += 1

    def draft(self, tree: WideTree) -> Draft:
        """See the class."""
        grown = eagle2(tree, NODES, WIDEST, self._most, partial(self._pays, tree))
        self._grown = list(grown.nodes)
        ease, survival = self._ease.of(self._answer), dict[int, float]()
        for node in self._grown:
            above = survival[tree.parents[node]] if tree.parents[node] != ROOT else 1.0
            survival[node] = min(above, ease * self._expected(tree, node))
        falling = sorted(self._grown, key=lambda node: -survival[node])
        choice = choose(
            [[survival[node] for node in falling]],
            (),
            lambda rows: np.array([self._seconds(grown.reads, max(0, int(r) - 1)) for r in rows]),
        )
        nodes = sorted(falling[: choice.lengths[0]])
        self._spent += self._seconds(grown.reads, len(nodes))
        return Draft(nodes, grown.reads, len(nodes), sum(survival[node] for node in nodes))

    def saw(self, tree: WideTree, accepted: int) -> None:
        """As `drafters.learned.Used` learns: of every node of which the step tells whether it came,
        verified or not."""
        emitted, held, expected = accepted + 1, 0, 0.0
        known = dict[int, bool]()
        for node in self._grown:
            parent, depth = tree.parents[node], tree.depths[node]
            if parent != ROOT and parent not in known:
                continue
            above = parent == ROOT or known[parent]
            if above and depth == emitted:
                continue
            known[node] = above and tree.came[node]
            expected += self._expected(tree, node)
            came = known[node]
            self._confidence.saw(tree.values[node], depth, greedy=True, came=came)
            held = max(held, depth + 1 if came else 0)
        levels = 1 + max((tree.depths[node] for node in self._grown), default=-1)
        drawn = min(levels, emitted)
        self._stop.saw([depth < held for depth in range(min(drawn, held + 1))])
        self._ease.saw(self._answer, held, expected)
        self._emitted += emitted

    def _pays(self, tree: WideTree, frontier: Sequence[int], reads: Sequence[int]) -> bool:
        level = self._seconds((*reads, len(frontier)), 0) - self._seconds(reads, 0)
        self._stop.price = level * self._emitted / self._spent
        values = [tree.values[node] for node in frontier]
        return self._stop.pays(self._answer, values, len(reads) - 1, greedy=True)

    def _expected(self, tree: WideTree, node: int) -> float:
        return self._confidence.survival(tree.values[node], tree.depths[node], greedy=True)
