"""Rules for trees and stops on wide trees of chance, and on ones whose best part is known."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.rules.ours import Ours
from ops.rules.rules import (
    AdaEdl,
    chain,
    dyspec,
    eagle2,
    hindsight,
    opt_tree,
    rank_rates,
    sequoia,
    shape_reads,
    specdec,
    static,
)
from ops.rules.wide_tree import ROOT, Draft, WideTree
from workers.drafting.confidence import Confidence

RANKS, DEPTH = 3, 3


def wide_tree(chances: list[float], said: tuple[int, ...] = ()) -> WideTree:
    """A whole tree of RANKS children and DEPTH levels, whose nodes' children share one distribution
    each, of as many chances as there are nodes with children; the answer goes along `said`."""
    given, parents, ranks, depths, values = iter(chances), [], [], [], []
    entropies, came, frontier = [], [], [(ROOT, 0.0, ())]
    for depth in range(DEPTH):
        below = []
        for place, (node, value, path) in enumerate(frontier):
            best = next(given)
            q = [best, *(((1.0 - best) / (1 << rank)) * min(1.0, best) for rank in (1, 2))]
            q.sort(reverse=True)
            entropies += [-math.log(q[0])] if not place else []
            for rank, chance in enumerate(q):
                at = (*path, rank)
                below.append((len(parents), value + math.log(max(chance, 1e-9)), at))
                parents.append(node)
                ranks.append(rank)
                depths.append(depth)
                values.append(below[-1][1])
                came.append(at == said[: len(at)])
        frontier = below
    return WideTree(parents, ranks, depths, values, entropies, came)


PARENTS = sum(RANKS**depth for depth in range(DEPTH))
TREES = st.builds(
    wide_tree,
    st.lists(st.floats(0.01, 0.99), min_size=PARENTS, max_size=PARENTS),
    st.lists(st.integers(0, RANKS), max_size=DEPTH).map(tuple),
)


def seconds(reads, nodes: int) -> float:
    return 1.0 + 0.02 * nodes + sum(0.1 + 0.01 * rows for rows in reads)


def drafts(tree: WideTree) -> dict[str, Draft]:
    ours = Ours(seconds, DEPTH)
    ours.begin()
    paths = [(0,), (1,), (0, 0), (0, 1)]
    return {
        "chain": chain(tree, 2),
        "eagle2": eagle2(tree, 5, 2, DEPTH),
        "opt_tree": opt_tree(tree, 5, 0.1, DEPTH),
        "dyspec": dyspec(tree, 6, DEPTH),
        "static": static(tree, paths),
        "adaedl": AdaEdl(0.5, DEPTH).draft(tree),
        "specdec": specdec(tree, 0.3, Confidence(), DEPTH),
        "ours": ours.draft(tree),
        "hindsight": hindsight(tree, DEPTH),
    }


@given(TREES)
def test_every_rule_drafts_a_connected_part(tree: WideTree) -> None:
    for name, draft in drafts(tree).items():
        nodes = set(draft.nodes)
        assert len(nodes) == len(draft.nodes) == draft.size, name
        assert all(tree.parents[node] in {ROOT, *nodes} for node in nodes), name
        levels = 1 + max((tree.depths[node] for node in nodes), default=-1)
        assert len(draft.reads) >= levels, name
        # below a level there cannot be more nodes than what was read has children
        for depth in range(levels):
            above = {tree.parents[node] for node in nodes if tree.depths[node] == depth}
            assert len(above) <= draft.reads[depth], name
        path = [node for node in sorted(nodes) if tree.came[node]]
        assert [tree.depths[node] for node in path] == list(range(tree.accepted(nodes))), name


@given(TREES, st.integers(1, 8))
def test_opt_tree_expects_more_of_more_nodes_and_levels(tree: WideTree, nodes: int) -> None:
    by_depth = [opt_tree(tree, nodes, -1.0, depth).expected for depth in range(1, DEPTH + 1)]
    assert by_depth == sorted(by_depth)
    assert opt_tree(tree, nodes + 1, -1.0, DEPTH).expected >= by_depth[-1]


@given(TREES, st.integers(1, 3))
def test_opt_tree_is_the_best_of_all_trees_of_its_size(tree: WideTree, nodes: int) -> None:
    def connected(chosen: tuple[int, ...]) -> bool:
        return all(tree.parents[node] in {ROOT, *chosen} for node in chosen)

    best = max(
        sum(map(tree.probability, chosen))
        for chosen in itertools.combinations(range(len(tree)), nodes)
        if connected(chosen)
    )
    assert opt_tree(tree, nodes, -1.0, DEPTH).expected == pytest.approx(best)


def test_opt_tree_reads_on_below_all_that_it_kept() -> None:
    """The second node's favourite is likelier than the first one's."""
    tree = wide_tree([0.5, 0.2, 0.99, *[0.2] * (PARENTS - 3)])
    drafted = opt_tree(tree, 3, -1.0, 2)
    assert [(tree.parents[node], tree.ranks[node]) for node in drafted.nodes] == [
        (ROOT, 0),
        (ROOT, 1),
        (tree.child(ROOT, 1), 0),
    ]


@given(TREES)
def test_opt_tree_stops_where_a_level_adds_too_little(tree: WideTree) -> None:
    assert len(opt_tree(tree, 4, float(DEPTH), DEPTH).reads) == 1


def best_forest(rates: list[float], nodes: int, depth: int, rank: int = 0) -> float:
    """Sequoia's dynamic programme: the most that children from this rank on can be expected to
    have accepted, with so many nodes in so many levels."""
    if not nodes or not depth or rank == len(rates):
        return 0.0
    return max(
        [best_forest(rates, nodes, depth, rank + 1)]
        + [
            rates[rank] * (1.0 + best_forest(rates, mine - 1, depth - 1))
            + best_forest(rates, nodes - mine, depth, rank + 1)
            for mine in range(1, nodes + 1)
        ]
    )


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=3),
    st.integers(1, 6),
    st.integers(1, 3),
)
def test_sequoias_tree_is_its_dynamic_programmes(
    rates: list[float], nodes: int, depth: int
) -> None:
    """Where a node costs next to nothing, the best tree is the one that has most accepted."""
    rates = [rate / len(rates) for rate in sorted(rates, reverse=True)]
    shape, expected = sequoia(rates, nodes, depth, lambda reads, n: 1.0 + 1e-9 * (n + len(reads)))
    assert all(path[:-1] in {(), *shape} for path in shape)
    assert expected == pytest.approx(best_forest(rates, nodes, depth))


def test_sequoia_drafts_nothing_that_does_not_pay() -> None:
    assert sequoia([0.1, 0.05], 4, 2, lambda reads, n: 1.0 + n + len(reads)) == ([], 0.0)


def test_reads_of_a_shape() -> None:
    assert shape_reads([(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)]) == [1, 2, 1]


def test_rates_of_ranks() -> None:
    """Of what was reached: every root, and what came and had children."""
    sure = [0.5] * PARENTS
    trees = [wide_tree(sure, (0, 1)), wide_tree(sure, (2,)), wide_tree(sure)]
    # three roots, two first nodes and one second; of a third level's node nobody read on
    assert rank_rates(trees, 3) == pytest.approx([1 / 6, 1 / 6, 1 / 6])


def test_dyspec_takes_what_is_left_for_siblings() -> None:
    """A flat distribution leaves more beside its best token than below it, a sharp one less."""
    flat = dyspec(wide_tree([0.4] * PARENTS), 2, DEPTH)
    sharp = dyspec(wide_tree([0.9] * PARENTS), 2, DEPTH)
    assert len(flat.reads) == 1
    assert len(sharp.reads) == 2


def test_adaedl_moves_its_threshold_towards_nine_of_ten() -> None:
    tree = wide_tree([0.6] * PARENTS)
    rejected, accepted = AdaEdl(0.6, DEPTH), AdaEdl(0.6, DEPTH)
    assert rejected.draft(tree).size == accepted.draft(tree).size
    for _ in range(200):
        rejected.draft(tree)
        rejected.saw(tree, 0)
        found = accepted.draft(tree)
        accepted.saw(tree, found.size)
    assert rejected.draft(tree).size == 1
    assert accepted.draft(tree).size == DEPTH


def test_specdec_bears_so_much_risk() -> None:
    tree = wide_tree([0.8] * PARENTS)
    assert specdec(tree, 0.1, Confidence(), DEPTH).size == 1
    assert specdec(tree, 0.3, Confidence(), DEPTH).size == 2
    assert specdec(tree, 0.9, Confidence(), DEPTH).size == DEPTH


def test_ours_learns_whether_its_drafter_is_to_be_believed() -> None:
    sure = [0.9] * PARENTS
    right, wrong = wide_tree(sure, (0, 0, 0)), wide_tree(sure)
    believing, doubting = Ours(seconds, DEPTH), Ours(seconds, DEPTH)
    for rule, tree in ((believing, right), (doubting, wrong)):
        rule.begin()
        for _ in range(300):
            rule.saw(tree, tree.accepted(rule.draft(tree).nodes))
    assert believing.draft(right).size >= DEPTH
    assert doubting.draft(wrong).size == 0
