"""The planner of static trees against brute force and worlds whose best tree is known."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.models.tune.tree_planner import (
    PathRates,
    Ranks,
    StepCost,
    best_nodes,
    plan_tree,
    replay,
    tokens_per_step,
)

RANKS, DEPTH = 2, 3
EVERY = [p for d in range(1, DEPTH + 1) for p in itertools.product(range(RANKS), repeat=d)]
CHAIN = [(0,) * depth for depth in range(1, 5)]


def answer(*rows: list[int]) -> Ranks:
    return np.array(rows, dtype=np.int64)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=len(EVERY), max_size=len(EVERY)), st.integers(1, 5))
def test_no_tree_of_as_many_nodes_is_worth_more(chances: list[float], nodes: int) -> None:
    """All connected trees of so many nodes, one by one."""
    known = dict(zip(EVERY, chances, strict=True))

    def value(path: tuple[int, ...]) -> float:
        return float(np.prod([known[path[:depth]] for depth in range(1, len(path) + 1)]))

    def connected(tree: tuple[tuple[int, ...], ...]) -> bool:
        return all(len(path) == 1 or path[:-1] in tree for path in tree)

    trees = filter(connected, itertools.combinations(EVERY, nodes))
    found = best_nodes(lambda path: [known[*path, rank] for rank in range(RANKS)], nodes, DEPTH)
    assert connected(tuple(path for path, _ in found))
    assert [chance for _, chance in found] == pytest.approx([value(path) for path, _ in found])
    best = max(sum(map(value, tree)) for tree in trees)
    assert sum(chance for _, chance in found) == pytest.approx(best)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=1, max_size=12),
        min_size=1,
        max_size=3,
    ),
    st.sets(st.sampled_from(EVERY)),
)
def test_replayed_steps(rows: list[list[list[int]]], chosen: set[tuple[int, ...]]) -> None:
    """A node is reached where its whole path is in the tree and is what the answer says."""
    tree = {path for path in chosen if all(path[:d] in chosen for d in range(1, len(path)))}
    answers, steps = [answer(*own) for own in rows], 0
    for own, begun in zip(rows, replay(tree, answers), strict=True):
        at = 0
        while at < len(own):
            assert begun[0] == at
            begun = begun[1:]
            at += 1 + max(
                (len(path) for path in tree if [*path] == own[at][: len(path)]), default=0
            )
            steps += 1
        assert not begun
    assert tokens_per_step(tree, answers) == sum(map(len, rows)) / steps


def test_rates_of_paths() -> None:
    """A path that was seen often has its own rates, one that was not those of its depth."""
    often = [[0, 1]] * 3000 + [[0, 5]] * 1000
    rates = PathRates([*often, [1, 0], [5, 0]], ranks=2)
    assert rates.children(()) == pytest.approx([4000 / 4002, 1 / 4002], abs=1e-3)
    assert rates.children((0,)) == pytest.approx([0.0, 0.75], abs=1e-3)
    assert rates.children((1,))[1] == pytest.approx(3000 / 4001 * 16 / 17)
    assert rates.children((0, 1)) == [0.0, 0.0]
    assert rates.per_rank()[0] == pytest.approx([4000 / 4002, 1 / 4002])
    assert rates.per_rank()[1] == pytest.approx([1 / 4001, 3000 / 4001])


def flat(depths: int, per_node: float, per_level: float = 0.0) -> StepCost:
    """A step costs 1, and more for every node and level."""
    cells = [(depth, nodes) for depth in range(1, depths + 1) for nodes in (1, 16)]
    return StepCost({(d, n): 1.0 + per_node * n + per_level * d for d, n in cells})


def test_a_drafter_that_is_always_right_gets_a_chain() -> None:
    best, *others = plan_tree([answer(*[[0, 0, 0, 0]] * 400)], flat(4, 0.01), ranks=3)
    assert list(best.paths) == CHAIN
    assert best.tokens_per_step == 5.0
    assert best.depth == 4
    assert best.seconds == pytest.approx(1.04)
    assert [tree.depth for tree in others] == [3, 2, 1]


def test_a_drafter_that_wavers_gets_siblings() -> None:
    """Its first or its second guess is right, what follows never."""
    ranks = np.random.default_rng(0).integers(0, 2, 400)
    rows = np.stack([ranks, np.full(400, 9)], axis=1)
    best = plan_tree([rows], flat(2, 0.05), ranks=3)[0]
    assert set(best.paths) == {(0,), (1,)}
    assert best.tokens_per_step == 2.0


def test_steps_that_begin_only_where_the_best_guess_is_right() -> None:
    """It is right at every other position, and accepting it leads past the others."""
    best = plan_tree([answer(*[[0, 9], [1, 9]] * 200)], flat(2, 0.05), ranks=3)[0]
    assert best.paths == ((0,),)
    assert best.tokens_per_step == 2.0


def test_dear_nodes_and_dear_levels() -> None:
    rng = np.random.default_rng(0)
    answers = [(rng.random((600, 4)) > 0.7).astype(np.int64) * 9]
    sizes = [
        len(plan_tree(answers, flat(4, price), ranks=3)[0].paths) for price in (0.01, 0.3, 2.0)
    ]
    assert sizes[0] == 4
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    assert plan_tree(answers, flat(4, 0.01, 0.8), ranks=3)[0].depth < 4


def test_positions_where_steps_begin_count() -> None:
    """Every fifth token is hard, rank 1 helps there; a deep chain begins its steps only there."""
    rows = answer(*[[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]] * 100)
    best = plan_tree([rows], flat(4, 0.02), ranks=2)[0]
    assert (1, 0, 0, 0) in best.paths
    assert best.tokens_per_step == tokens_per_step(best.paths, [rows])


def test_costs_between_measured_sizes() -> None:
    cost = StepCost({(1, 1): 1.0, (1, 9): 2.0, (2, 4): 3.0})
    assert cost.depths == [1, 2]
    assert cost.most_nodes == 9
    assert [cost.seconds(1, n) for n in (1, 5, 9, 20)] == [1.0, 1.5, 2.0, 2.0]
    with pytest.raises(KeyError):
        cost.seconds(3, 1)


def test_nothing_recorded() -> None:
    with pytest.raises(ValueError, match="longer answers"):
        plan_tree([np.empty((0, 2), dtype=np.int64)], flat(2, 0.1), ranks=2)
