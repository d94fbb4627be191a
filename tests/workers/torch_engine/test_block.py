"""Block verification, enumerated: what it emits, and how much it accepts."""

import itertools
import math
import random
from collections import defaultdict
from typing import Any

import mutants
import pytest
import torch
from table_world import Said
from torch import Tensor

from schemas import SamplingParams
from workers.torch_engine import registry
from workers.torch_engine.parts import Proposal
from workers.torch_engine.tree import ROOT
from workers.torch_engine.verifiers import block

VOCAB, DRAFTS = 3, 3
Text = tuple[int, ...]
Table = dict[Text, Tensor]


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


def chain(text: Text, q: Table) -> Proposal:
    said = Said(0, SamplingParams(temperature=1.0), None, random.Random(0))
    made = Proposal(sequence=said, plan=None, limit=DRAFTS)  # type: ignore[arg-type]
    for place, token in enumerate(text):
        made.add(token, parent=place - 1 if place else ROOT, q=q[text[:place]])
    return made


def ends(judge: Any, text: Text, p: Table, q: Table) -> list[tuple[int, float, Tensor]]:
    """For each number of accepted tokens of a chain, its chance and the next token's odds."""
    rows = torch.stack([p[text[:n]] for n in range(DRAFTS + 1)])
    [passes], excess = judge([chain(text, q)], rows, [0])
    found, longer_fail = list[tuple[int, float, Tensor]](), 1.0
    for count in range(DRAFTS, 0, -1):
        odds = rows[count] if count == DRAFTS else excess[count]
        found.append((count, longer_fail * passes[count - 1], odds))
        longer_fail *= 1.0 - passes[count - 1]
    return [*found, (0, longer_fail, excess[0])]


def emitted(judge: Any, p: Table, q: Table) -> dict[Text, float]:
    """The chance of every text of DRAFTS + 1 tokens, the ones after a step drawn from p."""
    chances = defaultdict[Text, float](float)
    for text in itertools.product(range(VOCAB), repeat=DRAFTS):
        drafted = chance_of(text, q)
        for count, chance, odds in ends(judge, text, p, q) if drafted else []:
            reached = drafted * chance
            if reached < 1e-15:  # rounding
                continue
            for rest in itertools.product(range(VOCAB), repeat=DRAFTS + 1 - count):
                whole = text[:count] + rest
                bonus = reached * float(odds[rest[0]] / odds.sum())
                later = chance_of(whole, p, count + 1)
                chances[whole] += bonus * later
    return chances


def accepted(p: Table, q: Table) -> tuple[float, float]:
    """The mean number of accepted tokens by block and by token-by-token rejection."""
    by_block = by_token = 0.0
    for text in itertools.product(range(VOCAB), repeat=DRAFTS):
        drafted = chance_of(text, q)
        if drafted == 0.0:
            continue
        by_block += drafted * sum(n * chance for n, chance, _ in ends(block.judge, text, p, q))
        kept = 1.0
        for place, token in enumerate(text):
            before = text[:place]
            kept *= min(1.0, float(p[before][token] / q[before][token]))
            by_token += drafted * kept
    return by_block, by_token


def furthest(judge: Any, p: Table, q: Table) -> float:
    """The largest difference of an emitted text's chance from the target's."""
    said = emitted(judge, p, q)
    every = itertools.product(range(VOCAB), repeat=DRAFTS + 1)
    return max(abs(said[text] - chance_of(text, p)) for text in every)


@pytest.mark.parametrize("seed", range(4))
def test_it_emits_the_targets_distribution_and_accepts_no_less(seed: int) -> None:
    p, q = table(seed), table(seed + 100)
    assert furthest(block.judge, p, q) < 1e-12
    by_block, by_token = accepted(p, q)
    assert by_block >= by_token - 1e-12


def test_the_same_distribution_is_accepted_whole() -> None:
    p = table(1)
    assert accepted(p, p) == pytest.approx((DRAFTS, DRAFTS))


def test_it_accepts_more_where_a_later_token_makes_up_for_an_earlier_one() -> None:
    """Two drafts from (2/3, 1/3) for a target of (1/3, 2/3): 11/9, by tokens 10/9."""
    p = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    q = p.flip(0)
    mean = 0.0
    for text in itertools.product(range(2), repeat=2):
        made = chain(text, {(): q, (text[0],): q})
        [[first, whole]], _ = block.judge([made], p.repeat(3, 1), [0])
        drafted = float(q[text[0]] * q[text[1]])
        mean += drafted * (2 * whole + (1 - whole) * first)
    assert mean == pytest.approx(11 / 9)


WRONG = {
    "weights above 1": ("min(1.0, joint[-1][-1] * next(ratios))", "joint[-1][-1] * next(ratios)"),
    "weights of single tokens": ("joint[-1][-1] * next(ratios)", "next(ratios)"),
    "prefixes pass with their weights": ("mass / (mass + (1.0 - weight)) if", "weight if"),
    "the whole chain always passes": ("*weights[1:][-1:]", "*[1.0 for _ in weights[1:][-1:]]"),
    "excess without its weight": ("scale[:, None] * p[rows]", "p[rows]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_emit_something_else(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    registry._import_parts()
    monkeypatch.setattr(registry, "register", lambda *_: lambda cls: cls)
    made = mutants.mutated(monkeypatch, block, *WRONG[name])
    assert furthest(made.judge, table(2), table(102)) > 1e-3
