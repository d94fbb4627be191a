"""Trees have the shape they are told to have, of the tokens that a drafter knows."""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from table_world import Said
from torch import Tensor

from schemas import SamplingParams
from workers.torch_engine import registry
from workers.torch_engine.interfaces import Plan, Proposal, Tree
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.models.kv_pool import TREE_ROOM
from workers.torch_engine.tree import DROPPED, ROOT
from workers.torch_engine.tree_growth import expand, kept_slots
from workers.torch_engine.trees.static import RankPath, format_path

VOCAB = 7


class _Vocabulary:
    vocab = VOCAB


def build(name: str, **wishes: Any) -> Tree:
    tree: Tree = registry.build("tree", name, _Vocabulary(), wishes)
    return tree


def proposal(tree: Tree, number: int = 0, temperature: float = 0.0) -> Proposal:
    said = Said(number, SamplingParams(temperature=temperature), None, random.Random(number))
    return Proposal(sequence=said, plan=Plan(None, tree, None), limit=9)


def row_after(path: Sequence[int]) -> Tensor:
    """A drafter's logits [vocab] after some tokens: any, but always the same."""
    seed = torch.Generator().manual_seed(hash(tuple(path)) % 2**31)
    return torch.randn(VOCAB, generator=seed) * 2.0


def path_to(p: Proposal, node: int) -> list[int]:
    """A node's tokens from the first level down."""
    return [p.tokens[n] for n in p.path_to(node)]


def grow(proposals: Sequence[Proposal], levels: int) -> None:
    """As drafters do, with every frontier node read."""
    active = list(proposals)
    for _ in range(levels):
        logits = torch.stack([row_after(path_to(p, n)) for p in active for n in p.frontier])
        for p in active:
            p.cached += [node for node in p.frontier if node != ROOT]
        expand(active, DraftLogits.of_all(logits))
        active = [p for p in active if p.frontier]
        if not active:
            break
    for p in proposals:
        p.plan.tree.finish([p])


def rank_paths(p: Proposal) -> set[RankPath]:
    """The nodes as ranks among all tokens under their parents."""
    named: dict[int, RankPath] = {ROOT: ()}
    for node, parent in enumerate(p.parents):
        order = row_after(path_to(p, parent)).argsort(descending=True).tolist()
        named[node] = (*named[parent], order.index(p.tokens[node]))
    return set(named.values()) - {()}


def check(p: Proposal) -> None:
    """What every tree must be."""
    assert all(ROOT <= parent < node for node, parent in enumerate(p.parents))
    assert [0 if q == ROOT else p.depths[q] + 1 for q in p.parents] == p.depths
    assert len({(q, t) for q, t in zip(p.parents, p.tokens, strict=True)}) == len(p)
    assert p.is_chain == (p.parents == [*range(-1, len(p) - 1)])
    for node, row in enumerate(p.logits):
        assert row is not None
        assert torch.equal(row.whole()[0], row_after(path_to(p, p.parents[node])))


@st.composite
def shapes(draw: st.DrawFn) -> list[RankPath]:
    """Connected trees of up to twelve nodes, in any order."""
    nodes: list[RankPath] = []
    for _ in range(draw(st.integers(1, 12))):
        parent = draw(st.sampled_from([(), *nodes]))
        if len(parent) < 4 and (path := (*parent, draw(st.integers(0, VOCAB - 1)))) not in nodes:
            nodes.append(path)
    return draw(st.permutations(nodes))


def static(shape: list[RankPath], *, sample: bool = False) -> Tree:
    return build("static", paths=" ".join(map(format_path, shape)), sample=sample)


@settings(max_examples=40, deadline=None)
@given(shapes(), shapes(), st.booleans(), st.integers(1, 5))
def test_static_trees_are_their_paths(one, two, sample, levels):
    """Two shapes share a batch. At temperature 0 a tree that samples takes the best as well."""
    trees = [static(shape, sample=sample) for shape in (one, two)]
    proposals = [proposal(trees[i % 2], i) for i in range(4)]
    grow(proposals, levels)
    for p, wanted in zip(proposals, [one, two] * 2, strict=True):
        check(p)
        assert rank_paths(p) == {path for path in wanted if len(path) <= levels}
        assert p.q == [None] * len(p)


@settings(max_examples=30, deadline=None)
@given(shapes(), st.integers(0, 1000))
def test_sampled_children_differ_and_carry_what_they_were_drawn_from(shape, number):
    p = proposal(static(shape, sample=True), number, 1.0)
    grow([p], 5)
    check(p)
    assert sorted(map(len, shape)) == [depth + 1 for depth in p.depths]
    for node, q in enumerate(p.q):
        assert q is not None
        assert float(q.sum()) == pytest.approx(1.0)
        assert q[p.tokens[node]] > 0.0
        elders = [p.tokens[c] for c in p.children(p.parents[node]) if c < node]
        assert not q[elders].any()


def test_children_beyond_the_support_are_drawn_evenly() -> None:
    """Nucleus of one token: q has no mass for the second child."""
    tree = build("static", widths=(3,), sample=True)
    p = proposal(tree, temperature=1.0)
    p.sequence.sampling = SamplingParams(temperature=1.0, top_k=1)
    grow([p], 1)
    assert len(set(p.tokens)) == 3
    assert sorted(p.q[1].tolist()) == pytest.approx([0.0, *[1 / 6] * 6])
    assert sorted(p.q[2].tolist()) == pytest.approx([0.0, 0.0, *[1 / 5] * 5])


def best_values(nodes: int, k: int, levels: int) -> list[float]:
    """Values of the `nodes` best candidates, beam by beam with nothing left out."""
    beam: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    found: list[float] = []
    for _ in range(levels):
        below = []
        for value, path in beam:
            q = row_after(path).log_softmax(-1).tolist()
            best = sorted(range(VOCAB), key=lambda token: -q[token])[:k]
            below += [(value + q[token], (*path, token)) for token in best]
        below.sort(reverse=True)
        found += [value for value, _ in below]
        beam = below[:k]
    return sorted(found, reverse=True)[:nodes]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(0, 12), st.integers(1, 5), st.floats(0.0, 1.0))
def test_eagle2_keeps_the_best_of_all(k: int, more: int, levels: int, temperature: float) -> None:
    tree = build("eagle2", nodes=k + more, k=k)
    proposals = [proposal(tree, i, temperature) for i in range(2)]
    grow(proposals, levels)
    for p in proposals:
        check(p)
        assert p.q == [None] * len(p)
        assert len(p) == min(k + more, k + (levels - 1) * k * k)
        assert sorted(p.values, reverse=True) == pytest.approx(best_values(k + more, k, levels))
        for node, parent in enumerate(p.parents):
            assert p.values[node] <= (0.0 if parent == ROOT else p.values[parent])


def test_eagle2_prefers_the_shallower_of_equals() -> None:
    """One token is certain at every level, so that all of a chain has the value 0."""
    tree = build("eagle2", nodes=3, k=2)
    p = proposal(tree)
    certain = torch.full((1, VOCAB), -torch.inf).index_fill(1, torch.tensor(3), 0.0)
    for _ in range(5):
        expand([p], DraftLogits.of_all(certain))
    tree.finish([p])
    assert p.depths == [0, 1, 2]
    assert p.is_chain


def test_eagle2_reads_no_more_than_a_row_has_room_for() -> None:
    tree = build("eagle2", nodes=12, k=6)
    p = proposal(tree)
    grow([p], 20)
    assert 0 < len(p.cached) <= TREE_ROOM
    assert len(p) == 12


def test_a_row_that_all_nodes_share() -> None:
    """What Medusa's heads give: one row per proposal and level."""
    for name, wishes in (("static", {"widths": (3, 2)}), ("eagle2", {"nodes": 6, "k": 2})):
        shared, full = [[proposal(build(name, **wishes), i) for i in range(2)] for _ in "ab"]
        for level in range(2):
            logits = torch.stack([row_after([level, i]) for i in range(2)])
            expand(shared, DraftLogits.of_all(logits))
            each = [logits[i] for i, p in enumerate(full) for _ in p.frontier]
            expand(full, DraftLogits.of_all(torch.stack(each)))
        for one, other in zip(shared, full, strict=True):
            assert (one.tokens, one.parents) == (other.tokens, other.parents)
            assert one.values == pytest.approx(other.values)


@settings(max_examples=40, deadline=None)
@given(shapes(), st.data())
def test_keeping_some_nodes(shape: list[RankPath], data: st.DataObject) -> None:
    """What stays is what it was, under new numbers; slots of what the drafter read stay where
    they are."""
    p = proposal(static(shape))
    grow([p], 5)
    before = [path_to(p, node) for node in range(len(p))]
    cached = [before[node] for node in p.cached]
    kept = data.draw(st.sets(st.sampled_from(range(len(p)))))
    kept |= {a for n in kept for a in range(len(p)) if before[a] == before[n][: len(before[a])]}
    p.keep(sorted(kept))
    check(p)
    assert [path_to(p, node) for node in range(len(p))] == [before[node] for node in sorted(kept)]
    for slot, node in enumerate(p.cached):
        assert node == DROPPED or path_to(p, node) == cached[slot]
    assert sum(node != DROPPED for node in p.cached) == sum(
        cached.count(before[node]) for node in kept
    )
    chain = list(itertools.takewhile(lambda n: p.parents[n] == n - 1, range(len(p))))
    slots = kept_slots(p, chain)
    assert [cached[slot] for slot in slots] == [path_to(p, n) for n in chain if n in p.cached]


@pytest.mark.parametrize(
    ("name", "wishes", "said"),
    [
        ("static", {}, "give either widths"),
        ("static", {"widths": (2,), "paths": "0"}, "give either widths"),
        ("static", {"widths": (2, 0)}, "whole numbers above 0"),
        ("static", {"widths": (1.5,)}, "of another type"),
        ("static", {"widths": (4, 4, 4)}, "84 nodes are more than the 64"),
        ("static", {"widths": (8,)}, "rank 7 does not exist in a vocabulary of 7"),
        ("static", {"paths": "0 1.0"}, r"path 1\.0 has no parent"),
        ("static", {"paths": "0 0"}, "named twice"),
        ("static", {"paths": "0 a"}, "not a list of paths such as"),
        ("static", {"paths": "-1"}, "0 or more"),
        ("eagle2", {"nodes": 3, "k": 4}, "k=4, nodes=3"),
        ("eagle2", {"nodes": 65}, "nodes=65"),
        ("eagle2", {"k": 8}, "exceeds the vocabulary"),
    ],
)
def test_trees_that_cannot_be(name: str, wishes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"tree '{name}': .*{said}"):
        build(name, **wishes)


@st.composite
def spoken(draw: st.DrawFn) -> tuple[DraftLogits, Tensor]:
    """Logits of a few tokens, and the same over the whole vocabulary."""
    rows = draw(st.integers(1, 4))
    ids = draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, unique=True))
    seed = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    values = torch.randn(rows, len(ids), generator=seed)
    whole = torch.full((rows, VOCAB), -torch.inf)
    whole[:, ids] = values
    return DraftLogits(values, torch.tensor(ids), VOCAB), whole


@settings(deadline=None)
@given(spoken(), st.data())
def test_as_over_the_whole_vocabulary(both, data):
    few, whole = both
    all_of_them = DraftLogits.of_all(whole)
    assert torch.equal(few.whole(), whole)
    assert torch.equal(all_of_them.whole(), whole)
    assert few.favourites() == all_of_them.favourites() == whole.argmax(-1).tolist()
    k = data.draw(st.integers(1, few.values.shape[-1]))
    assert few.best_tokens(k) == all_of_them.best_tokens(k) == whole.topk(k).indices.tolist()
    scores, tokens = few.best(k)
    assert tokens == few.best_tokens(k)
    expected = whole.log_softmax(-1).topk(k).values
    torch.testing.assert_close(torch.tensor(scores), expected)
    picked = data.draw(st.lists(st.integers(0, len(few) - 1), min_size=1))
    assert torch.equal(few.rows(picked).whole(), whole[picked])
    assert torch.equal(torch.cat([row.whole() for row in few.unbind()]), whole)


def test_more_than_it_knows_are_tokens_that_it_never_says() -> None:
    few = DraftLogits(torch.tensor([[1.0, 2.0]]), torch.tensor([4, 6]), VOCAB)
    [tokens] = few.best_tokens(5)
    assert tokens[:2] == [6, 4]
    assert len(set(tokens)) == 5
    [scores], _ = few.best(3)
    assert scores[2] == -torch.inf
