"""Verifiers on trees, held against their rules written out."""

import math
import random

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

VOCAB = 4


def proposal(number: int = 0, row: int = 0, temperature: float = 1.0) -> Proposal:
    sampling = SamplingParams(temperature=temperature)
    said = Said(number, sampling, None, random.Random(number))
    return Proposal(sequence=said, plan=None, limit=9, row=row)


def random_tree(number: int, nodes: int, temperature: float) -> tuple[Proposal, TargetOutput]:
    """A tree of so many chosen nodes, and a target with an opinion at each; rows begin at 2."""
    rng, tree = random.Random(number), proposal(number, 2, temperature)
    for _ in range(nodes):
        parent, token = rng.randrange(ROOT, len(tree)), rng.randrange(VOCAB)
        if token not in [tree.tokens[c] for c in tree.children(parent)]:
            tree.add(token, parent)
    seeded = torch.Generator().manual_seed(number)
    logits = torch.randn(3 + len(tree), VOCAB, generator=seeded) * 1.5
    return tree, TargetOutput(logits, {}, {}, {})


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
    made, output = random_tree(seed, nodes, 1.0)
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
    made, output = random_tree(seed, nodes, 0.0)
    best = output.logits[made.row :].argmax(-1).tolist()
    node, kept = ROOT, list[int]()
    while inside := [c for c in made.children(node) if made.tokens[c] == best[node + 1]]:
        node = inside[0]
        kept.append(node)
    verifier = registry.build("verifier", name, None, {})
    assert verifier.verify([made], output) == [Path(tuple(kept), best[node + 1])]
