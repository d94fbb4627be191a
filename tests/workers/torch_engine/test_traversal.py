"""How much traversal verification accepts; test_distribution tests what it emits."""

import itertools
import random

import pytest
import torch
from table_world import Said
from torch import Tensor

from schemas import SamplingParams
from workers.torch_engine.interfaces import Proposal
from workers.torch_engine.tree import ROOT
from workers.torch_engine.verifiers import traversal


def weights(tokens: tuple[int, ...], p: Tensor, q: Tensor) -> list[float]:
    """Return the weights of a chain's nodes whose tokens are drawn from q, under a target p."""
    said = Said(0, SamplingParams(temperature=1.0), None, random.Random(0))
    made = Proposal(sequence=said, plan=None, limit=len(tokens))
    for place, token in enumerate(tokens):
        made.add(token, parent=place - 1 if place else ROOT, q=q)
    found, _ = traversal.weigh([made], p.repeat(len(tokens) + 1, 1), [0])
    return found.tolist()[1:]


def test_the_same_distribution_is_accepted_whole() -> None:
    p = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)
    for tokens in itertools.product(range(3), repeat=3):
        assert weights(tokens, p, p)[-1] == pytest.approx(1.0)


def test_a_chain_is_accepted_further_where_a_later_token_makes_up_for_an_earlier_one() -> None:
    """Two drafts from (2/3, 1/3) for a target of (1/3, 2/3): 11/9, token by token 10/9."""
    p = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    q, mean = p.flip(0), 0.0
    for tokens in itertools.product(range(2), repeat=2):
        first, whole = weights(tokens, p, q)
        drafted = float(q[tokens[0]] * q[tokens[1]])
        mean += drafted * (2 * whole + (1 - whole) * first)
    assert mean == pytest.approx(11 / 9)
