"""Traversal verification, enumerated: what it emits, and how much it accepts."""

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterator

import pytest
import torch
from table_world import Said
from torch import Tensor

from schemas import SamplingParams
from workers.torch_engine.interfaces import Proposal
from workers.torch_engine.tree import ROOT
from workers.torch_engine.verifiers import traversal

VOCAB, DRAFTS = 3, 3
Text = tuple[int, ...]
Table = dict[Text, Tensor]
Drafted = tuple[Proposal, float]
SHAPES = [
    [ROOT, 0, 1],
    [ROOT, ROOT, 0, 0],
    [ROOT, ROOT, 1, 1, 2],
    [ROOT, ROOT, ROOT, 0, 1],
    [ROOT, 0, 0, 1, 1],
]
"""Trees as their nodes' parents."""
SEEDS = [1, 3]
KINDS = ["distinct", "repeated", "chosen first"]


def texts(longest: int) -> list[Text]:
    return [t for n in range(longest + 1) for t in itertools.product(range(VOCAB), repeat=n)]


def table(seed: int) -> Table:
    """The next token's distribution [vocab] float64 after every text; some tokens never follow."""
    generator = torch.Generator().manual_seed(seed)
    odds = torch.randn(len(texts(DRAFTS)), VOCAB, generator=generator, dtype=torch.float64)
    rows = torch.where(odds < -1.0, 0.0, (2.0 * odds).exp())
    rows[rows.sum(-1) == 0.0] = 1.0
    return dict(zip(texts(DRAFTS), rows / rows.sum(-1, keepdim=True), strict=True))


def chance_of(text: Text, model: Table, given: int = 0) -> float:
    """The chance of a text after its first `given` tokens."""
    return math.prod(float(model[text[:n]][text[n]]) for n in range(given, len(text)))


def drafts(parents: list[int], q: Table, kind: str = "distinct") -> Iterator[Drafted]:
    """Every tree of a shape with its chance. Children are drawn without replacement as the static
    tree draws them, or with it, or without it after a chosen eldest."""
    for tokens in itertools.product(range(VOCAB), repeat=len(parents)):
        made, chance, texts = proposal(), 1.0, dict[int, Text]({ROOT: ()})
        for token, parent in zip(tokens, parents, strict=True):
            elders = [made.tokens[child] for child in made.children(parent)]
            given: Tensor | None = q[texts[parent]]
            if kind == "chosen first" and not elders:
                given, chance = None, chance * (token == 1)
            elif kind != "repeated":
                given = without(elders[kind == "chosen first" :], q[texts[parent]])
            chance *= 1.0 if given is None else float(given[token])
            texts[len(made)] = (*texts[parent], token)
            made.add(token, parent, q=given)
        if chance > 0.0:
            yield made, chance


def without(tokens: list[int], q: Tensor) -> Tensor:
    """q less these tokens, renormalised; uniform over the others where nothing is left."""
    for spare in (q, torch.ones_like(q)):
        left = spare.index_fill(0, torch.tensor(tokens, dtype=torch.long), 0.0)
        if left.any():
            break
    return left / left.sum()


def proposal() -> Proposal:
    said = Said(0, SamplingParams(temperature=1.0), None, random.Random(0))
    return Proposal(sequence=said, plan=None, limit=DRAFTS)


def text_of(made: Proposal, node: int) -> Text:
    return tuple(made.tokens[n] for n in made.path_to(node))


def ends(trees: list[Drafted], p: Table) -> Iterator[tuple[Text, float, Tensor]]:
    """Every accepted path with its chance and the odds of the token after it."""
    proposals = [made for made, _ in trees]
    starts = [0, *itertools.accumulate(len(made) + 1 for made in proposals)][:-1]
    rows = [p[text_of(made, node)] for made in proposals for node in range(ROOT, len(made))]
    weights, left = traversal.weigh(proposals, torch.stack(rows), starts)
    for (made, reached), start in zip(trees, starts, strict=True):
        for node in [*traversal.leaves_first(made), ROOT]:
            chance = 1.0 if node == ROOT else min(1.0, float(weights[start + 1 + node]))
            yield text_of(made, node), reached * chance, left[start + 1 + node]
            reached *= 1.0 - chance


def furthest(trees: list[Drafted], p: Table) -> float:
    """The largest difference of an emitted text's chance from the target's."""
    length = 1 + max(made.drafted_levels for made, _ in trees)
    said = defaultdict[Text, float](float)
    for text, reached, odds in ends(trees, p):
        if reached < 1e-15:  # rounding
            continue
        for rest in itertools.product(range(VOCAB), repeat=length - len(text)):
            bonus = reached * float(odds[rest[0]] / odds.sum())
            said[text + rest] += bonus * chance_of(text + rest, p, len(text) + 1)
    every = itertools.product(range(VOCAB), repeat=length)
    return max(abs(said[text] - chance_of(text, p)) for text in every)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_emits_the_targets_distribution(shape: list[int], kind: str, seed: int) -> None:
    p, q = table(seed), table(seed + 100)
    trees = list(drafts(shape, q, kind))
    assert sum(chance for _, chance in trees) == pytest.approx(1.0)
    assert furthest(trees, p) < 1e-12


def test_the_same_distribution_is_accepted_whole() -> None:
    p = table(1)
    trees = list(drafts(SHAPES[0], p))
    accepted = sum(len(text) * chance for text, chance, _ in ends(trees, p))
    assert accepted == pytest.approx(DRAFTS)


def test_a_chain_is_accepted_further_where_a_later_token_makes_up_for_an_earlier_one() -> None:
    """Two drafts from (2/3, 1/3) for a target of (1/3, 2/3): 11/9, token by token 10/9."""
    p = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    q = p.flip(0)
    mean = 0.0
    for text in itertools.product(range(2), repeat=2):
        made = proposal()
        for place, token in enumerate(text):
            made.add(token, parent=place - 1 if place else ROOT, q=q)
        weights, _ = traversal.weigh([made], p.repeat(3, 1), [0])
        _, first, whole = weights.tolist()
        drafted = float(q[text[0]] * q[text[1]])
        mean += drafted * (2 * whole + (1 - whole) * first)
    assert mean == pytest.approx(11 / 9)
