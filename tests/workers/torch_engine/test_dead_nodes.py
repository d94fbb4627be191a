"""Drafts after which nothing can be chosen: answers are those of plain decoding, and end where it
ends."""

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
import table_world as world
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sampling_reference import Answer, chances, p_value
from torch import Tensor

from schemas import SamplingParams
from workers.engine import RequestFaultError
from workers.torch_engine.interfaces import Proposal
from workers.torch_engine.processed_logits import process
from workers.torch_engine.tree import ROOT, Path
from workers.torch_engine.verifiers import dead_nodes
from workers.torch_engine.verifiers.multi_step import MultiStep
from workers.torch_engine.verifiers.one_hot import OneHot
from workers.torch_engine.verifiers.rejection import Rejection
from workers.torch_engine.verifiers.target_choice import TargetChoice

DEAD = 3
"""A token that the grammar allows, and nothing after it."""
NO_MORE = 0
"""Fills up answers that end there."""

PAIRS = [
    (Rejection, world.sampled),
    (Rejection, world.mixed),
    (TargetChoice, world.top_two),
    (OneHot, world.top_two),
    (MultiStep, world.two_drafters),
    (MultiStep, world.grown("static", widths=(3, 2, 1), sample=True)),
]
FAST = (world.sampled, world.top_two)
SAMPLED = SamplingParams(temperature=1.0)
NAMES = [f"{verifier.__name__} {draft.__name__}" for verifier, draft in PAIRS]


class DeadEnds:
    """A grammar by hand: nothing follows DEAD. Stands where a request's Constraint does."""

    def advance(self, tokens: Any) -> None: ...

    def masks(self, proposal: Proposal) -> NDArray[np.bool_]:
        mask = np.ones((len(proposal) + 1, world.VOCAB), dtype=np.bool_)
        mask[1:][[token == DEAD for token in proposal.tokens]] = False
        return mask


def answers(verifier: type, draft: world.Drafting, wishes: list[SamplingParams]) -> list[Answer]:
    """The first tokens of an answer for each request, filled up behind DEAD."""
    said = world.answers(world.build(verifier), draft, wishes, DeadEnds, DEAD)
    return [(*answer, *[NO_MORE] * (world.TOKENS - len(answer))) for answer in said]


def next_logits(context: list[int]) -> Tensor:
    """The target's, and after DEAD nothing but what fills up."""
    if DEAD in context[len(world.PROMPT) :]:
        return torch.full((world.VOCAB,), -torch.inf).index_fill(0, torch.tensor(NO_MORE), 0.0)
    return world.TARGET[*context[-2:]]


@cache
def exact() -> dict[Answer, float]:
    return chances(next_logits, world.PROMPT, world.TOKENS, world.VOCAB, SAMPLED)


@pytest.mark.parametrize(
    ("verifier", "draft"),
    [
        pytest.param(*pair, id=name, marks=[] if draft in FAST else pytest.mark.slow)
        for pair, name in zip(PAIRS, NAMES, strict=True)
        for draft in pair[1:]
    ],
)
def test_the_answers_distribution_is_plain_decodings(verifier: type, draft: Any) -> None:
    found = answers(verifier, draft, [SAMPLED] * 2000)
    assert sum(answer.count(DEAD) for answer in found) > 100
    assert p_value(Counter(found), exact()) > 1e-3


@pytest.mark.parametrize(("verifier", "draft"), PAIRS, ids=NAMES)
def test_tokens_that_the_target_chooses_are_plain_decodings(verifier: type, draft: Any) -> None:
    wishes = [
        SamplingParams(temperature=temperature, seed=seed, logit_bias={DEAD: bias})
        for seed in range(30)
        for temperature in (0.0, 1.0)
        for bias in (0.0, 1.5)
    ]
    assert answers(verifier, draft, wishes) == answers(verifier, world.nothing, wishes)


class Rows:
    """A grammar by hand that allows given tokens after each node, and at the root."""

    def __init__(self, allowed: list[set[int]]) -> None:
        self._rows = np.array([[token in own for token in range(world.VOCAB)] for own in allowed])

    def advance(self, tokens: Any) -> None: ...

    def masks(self, _: Proposal) -> NDArray[np.bool_]:
        return self._rows


SETS = st.sets(st.integers(0, world.VOCAB - 1), max_size=3)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, world.VOCAB - 1), st.integers(-1, 8), SETS), max_size=9),
    SETS,
    st.sampled_from([OneHot, TargetChoice, MultiStep]),
    st.sampled_from([0.0, 1.0]),
)
def test_paths_end_where_nothing_can_be_chosen(nodes, first, verifier, temperature):
    """Any tree, any grammar: emitted tokens are allowed where they stand, and nothing follows a
    node that allows nothing."""
    wish = SamplingParams(temperature=temperature)
    one = world.said(0, wish, DeadEnds())
    proposal = Proposal(sequence=one, plan=None, limit=9)
    allowed = [first]
    for token, parent, follows in nodes:
        under = min(parent, len(proposal) - 1)
        if all(proposal.tokens[child] != token for child in proposal.children(under)):
            proposal.add(token, under)
            allowed.append(follows)
    one.processor._constraint = Rows(allowed)
    output, before = world._target([proposal]), list(proposal.parents)

    def verified() -> list[Path]:
        return dead_nodes.verify(world.build(verifier), [proposal], process([proposal], output))

    if not first:
        with pytest.raises(RequestFaultError, match="no token can be chosen"):
            verified()
        return
    [path] = verified()
    assert proposal.parents == before
    at = ROOT
    for node in path.nodes:
        assert proposal.parents[node] == at
        assert proposal.tokens[node] in allowed[at + 1]
        assert allowed[node + 1]
        at = node
    assert path.bonus in allowed[at + 1]
    if temperature == 0.0:  # as far as it goes, the target's best allowed token
        emitted = [*map(proposal.tokens.__getitem__, path.nodes), path.bonus]
        for node, token in zip((ROOT, *path.nodes), emitted, strict=True):
            row = output.logits[proposal.row + 1 + node].clone()
            row[[t for t in range(world.VOCAB) if t not in allowed[node + 1]]] = -torch.inf
            assert token == int(row.argmax())
