"""Trees are walked down by what is warped on the way: only where they are reached on a CPU, all at
once where a device would be waited for at every level. Both keep the same paths."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from table_world import Said

from schemas import SamplingParams
from workers.torch_engine import registry
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.tree import ROOT, Path
from workers.torch_engine.verifiers import target_choice

VOCAB = 4
KINDS = ("one_hot", "target_choice")


def trees(seed: int, wishes: SamplingParams) -> tuple[list[Proposal], TargetOutput]:
    """Three trees of chosen nodes of different sizes, and a target with an opinion at each."""
    rng, made, row = random.Random(seed), list[Proposal](), 0
    for number in range(3):
        said = Said(number, wishes, None, random.Random(seed + number))
        made.append(Proposal(sequence=said, plan=None, limit=9, row=row))
        for _ in range(rng.randrange(9)):
            parent, token = rng.randrange(ROOT, len(made[-1])), rng.randrange(VOCAB)
            if token not in [made[-1].tokens[c] for c in made[-1].children(parent)]:
                made[-1].add(token, parent)
        row += len(made[-1]) + 1
    logits = torch.randn(row, VOCAB, generator=torch.Generator().manual_seed(seed)) * 2.0
    return made, TargetOutput(logits, {}, {}, {})


def paths(kind: str, seed: int, wishes: SamplingParams) -> list[Path]:
    return registry.build("verifier", kind, None, {}).verify(*trees(seed, wishes))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6), given_seed=st.sampled_from([None, 7]))
def test_level_by_level_is_what_all_at_once_is(kind, seed, given_seed):
    wishes = SamplingParams(temperature=0.8, seed=given_seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target_choice, "_waits", lambda _: True)
        at_once = paths(kind, seed, wishes)
    assert paths(kind, seed, wishes) == at_once
