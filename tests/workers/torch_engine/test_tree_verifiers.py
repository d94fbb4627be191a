"""Verifiers on trees, held against their rules written out."""

import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from table_world import Said

from schemas import SamplingParams
from workers.torch_engine import registry
from workers.torch_engine.distribution import draw
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.tree import ROOT, Path
from workers.torch_engine.verifiers import target_choice

VOCAB = 4


def proposal(number: int = 0, row: int = 0, **wishes: Any) -> Proposal:
    sampling = SamplingParams.model_validate({"temperature": 1.0} | wishes)
    said = Said(number, sampling, None, random.Random(number))
    return Proposal(sequence=said, plan=None, limit=9, row=row)


def random_trees(number: int, *nodes: int, **wishes: Any) -> tuple[list[Proposal], TargetOutput]:
    """Trees of so many chosen nodes, and a target with an opinion at each; rows begin at 2."""
    rng, made, row = random.Random(number), list[Proposal](), 2
    for index, count in enumerate(nodes):
        tree = proposal(number + index, row, **wishes)
        for _ in range(count):
            parent, token = rng.randrange(ROOT, len(tree)), rng.randrange(VOCAB)
            if token not in [tree.tokens[c] for c in tree.children(parent)]:
                tree.add(token, parent)
        made.append(tree)
        row += len(tree) + 1
    logits = torch.randn(row, VOCAB, generator=torch.Generator().manual_seed(number)) * 1.5
    return made, TargetOutput(logits, {}, {}, {})


def typical_path(made: Proposal, p: torch.Tensor, epsilon: float, delta: float) -> tuple[int, ...]:
    """The rule of typical acceptance, path by path."""
    found: list[tuple[int, float, tuple[int, ...]]] = [(0, 0.0, ())]
    for leaf in range(len(made)):
        path = made.path_to(leaf)
        here = [p[made.parents[node] + 1] for node in path]
        values = [float(row[made.tokens[n]]) for row, n in zip(here, path, strict=True)]
        entropies = [float(torch.distributions.Categorical(row).entropy()) for row in here]
        least = [min(epsilon, delta * math.exp(-entropy)) for entropy in entropies]
        if all(value > bound for value, bound in zip(values, least, strict=True)):
            found.append((len(path), sum(map(math.log, values)), path))
    return max(found)[2]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(0, 15), st.sampled_from([(0.09, 0.3), (0.3, 0.3), (0.3, 2)])
)
def test_typical_acceptance(seed: int, nodes: int, bounds: tuple[float, float]) -> None:
    [made], output = random_trees(seed, nodes)
    settings = dict(zip(("epsilon", "delta"), bounds, strict=True))
    verifier = registry.build("verifier", "typical", None, settings)
    p = output.logits[made.row :].softmax(-1)
    kept = typical_path(made, p, *bounds)
    last = p[kept[-1] + 1 if kept else 0]
    bonus = draw(last[None], [random.Random(seed).random()])[0]
    assert verifier.verify([made], output) == [Path(kept, bonus)]


def test_what_a_request_excludes_is_not_typical() -> None:
    verifier = registry.build("verifier", "typical", None, {})
    made = proposal()
    made.add(1, ROOT)
    output = TargetOutput(torch.tensor([[0.5, 0.4, 0.1], [0.5, 0.4, 0.1]]).log(), {}, {}, {})
    assert verifier.verify([made], output)[0].nodes == (0,)
    made.sequence.sampling = SamplingParams(temperature=1.0, top_k=1)
    assert verifier.verify([made], output)[0] == Path((), 0)


@pytest.mark.parametrize("name", ["target_choice", "one_hot", "multi_step", "typical"])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(0, 15))
def test_temperature_zero_follows_the_best(name: str, seed: int, nodes: int) -> None:
    """The longest path whose every token is the target's best at its parent, then the best."""
    [made], output = random_trees(seed, nodes, temperature=0.0)
    best = output.logits[made.row :].argmax(-1).tolist()
    node, kept = ROOT, list[int]()
    while inside := [c for c in made.children(node) if made.tokens[c] == best[node + 1]]:
        node = inside[0]
        kept.append(node)
    verifier = registry.build("verifier", name, None, {})
    assert verifier.verify([made], output) == [Path(tuple(kept), best[node + 1])]


@pytest.mark.parametrize("kind", ["one_hot", "target_choice"])
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.tuples(*[st.integers(0, 8)] * 3), st.sampled_from([None, 7]))
def test_level_by_level_is_what_all_at_once_is(kind, number, nodes, seed):
    """A CPU warps what a path reaches; where a device would be waited for, all is warped before."""

    def paths() -> list[Path]:
        trees = random_trees(number, *nodes, temperature=0.8, seed=seed)
        return registry.build("verifier", kind, None, {}).verify(*trees)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target_choice, "_waits", lambda _: True)
        at_once = paths()
    assert paths() == at_once
