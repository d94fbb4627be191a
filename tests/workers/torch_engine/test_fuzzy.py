"""Fuzzy verification: the divergences, the threshold's ends."""

import math

import pytest
import torch
from decoding import decode, reference

from schemas import MethodSpec
from workers.bundle import Bundle
from workers.methods import get_method
from workers.torch_engine.verifiers.fuzzy import DIVERGENCES


def fuzzy(**verifier: object) -> MethodSpec:
    settings = {"stop": {"gamma": 3}, "verifier": verifier}
    return MethodSpec.model_validate(get_method("fuzzy").model_dump() | {"settings": settings})


def test_a_draft_vocabulary_of_fewer_tokens_leaves_divergences_finite() -> None:
    p = torch.tensor([[0.5, 0.3, 0.2]]).log()
    q = torch.tensor([[0.6, 0.4, 0.0]]).log()
    values = {name: float(f(p, q)) for name, (f, _) in DIVERGENCES.items()}
    both = (p.exp() + q.exp()) / 2
    half = [float((x.exp() * (x.exp() / both).log()).nan_to_num(0.0).sum()) for x in (p, q)]
    assert values["js"] == pytest.approx(sum(half) / 2, abs=1e-6)
    assert values["tv"] == pytest.approx(0.2, abs=1e-6)
    assert values["kl_qp"] == pytest.approx(
        0.6 * math.log(0.6 / 0.5) + 0.4 * math.log(0.4 / 0.3), abs=1e-6
    )
    assert values["kl_pq"] == math.inf


@pytest.mark.parametrize("divergence", sorted(DIVERGENCES))
async def test_a_threshold_of_zero_accepts_nothing(load_engine, byte_bundle, divergence):
    engine = load_engine([fuzzy(divergence=divergence, threshold=0.0)], byte_bundle)
    answer = await decode(engine, "fuzzy", [1, 2, 3], max_tokens=25)
    assert answer.tokens == reference(byte_bundle, [1, 2, 3], 25)
    assert answer.stats.accepted_tokens == 0


async def test_the_greatest_threshold_accepts_everything(load_engine, byte_bundle: Bundle) -> None:
    engine = load_engine([fuzzy(divergence="tv", threshold=1.0)], byte_bundle)
    for temperature in (0.0, 1.0):
        answer = await decode(
            engine, "fuzzy", [1, 2, 3], max_tokens=25, temperature=temperature, seed=1
        )
        assert answer.stats.accepted_tokens == answer.stats.drafted_tokens > 0
