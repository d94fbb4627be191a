"""Temperature, min-p, top-k, top-p and draws, against Hugging Face's, and at their ends."""

import asyncio
import itertools
import math
from typing import Any

import pytest
import torch
from decoding import decode, reference
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_reference import warped_row

from schemas import SamplingParams
from workers.bundle import Bundle
from workers.torch_engine import logit_processor
from workers.torch_engine.distribution import LIKELIEST, draw, warp, warp_each

WISHES = st.builds(
    SamplingParams,
    temperature=st.floats(0.05, 2.0),
    min_p=st.sampled_from([0.0, 0.01, 0.2, 1.0]),
    top_k=st.integers(0, 25),
    top_p=st.one_of(st.just(1.0), st.floats(0.05, 1.0)),
)


@settings(max_examples=150)
@given(st.integers(0, 2**31), WISHES)
def test_warp_equals_hugging_face(seed: int, wishes: SamplingParams) -> None:
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(seed)) * 3
    logits[1, 4:8] = logits[1, 3]
    ours = warp(logits, wishes)
    theirs = torch.stack([warped_row(row, wishes) for row in logits])
    torch.testing.assert_close(ours[::2], theirs[::2])
    # Hugging Face's sort is not stable: which of the equal scores of row 1 stay is not defined.
    torch.testing.assert_close(ours[1].sort().values, theirs[1].sort().values)


def test_rows_keep_their_own_parameters() -> None:
    logits = torch.randn(4, 9, generator=torch.Generator().manual_seed(1))
    cool, narrow = SamplingParams(temperature=0.3), SamplingParams(temperature=1.0, top_k=2)
    each = [cool, narrow, cool, narrow.model_copy(update={"min_p": 0.9})]
    alone = torch.cat([warp(row[None], s) for row, s in zip(logits, each, strict=True)])
    torch.testing.assert_close(warp_each(logits, each), alone)


@settings(max_examples=100)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=8).filter(any),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_a_draw_inverts_the_cumulative_weights(weights: list[int], u: float) -> None:
    at, left = 0, u * sum(weights)
    while left >= weights[at]:
        left -= weights[at]
        at += 1
    drawn = draw(torch.tensor([weights, weights], dtype=torch.float32), [u, 1.0 - 2**-53])
    assert drawn[0] == at
    assert weights[drawn[0]] > 0
    assert weights[drawn[1]] > 0


VOCAB = LIKELIEST + 200
TINY = [3e-38, 1e-45, 5e-324, 7e-46, 1e-6, 1e-5, 1e-3]


def logits(seed: int, rows: int, scale: float) -> torch.Tensor:
    """Rows with many equal logits, as bfloat16 models have."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, VOCAB, generator=generator) * scale).bfloat16().float()


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([0.05, 0.3, 1.0, 4.0]),
    top_p=st.sampled_from([1e-6, 0.1, 0.5, 0.9, 0.95, 0.999]),
    top_k=st.sampled_from([0, 3, 300]),
    rows=st.integers(2, 5),
)
def test_a_row_does_not_depend_on_the_others(seed, scale, top_p, top_k, rows):
    """One row is flat, so that its nucleus is larger than what is looked at first."""
    given_rows = logits(seed, rows, scale)
    given_rows[0] *= 0.02
    sampling = SamplingParams(temperature=0.9, top_p=top_p, top_k=top_k)
    together = warp(given_rows, sampling)
    for row in range(rows):
        assert torch.equal(together[row], warp(given_rows[row : row + 1], sampling)[0])
        assert torch.equal(together[row], warp(given_rows.flip(0), sampling)[rows - 1 - row])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([0.01, 0.3, 1.0, 4.0]),
    top_p=st.floats(0.01, 0.99),
)
def test_a_nucleus_is_the_smallest_set(seed: int, scale: float, top_p: float) -> None:
    [row] = logits(seed, 1, scale)
    [kept] = warp(row[None], SamplingParams(temperature=1.0, top_p=top_p)) > 0.0
    mass = row.double().softmax(-1)
    assert mass[kept].sum() >= top_p - 1e-5
    assert mass[kept].sum() - mass[kept].min() < top_p + 1e-5
    assert kept.any()
    if not kept.all():
        assert row[kept].min() >= row[~kept].max()
        least = row[kept].min()
        equal = (row == least).nonzero()[:, 0]
        taken = int((kept & (row == least)).sum())
        assert kept[equal[:taken]].all()  # of equals the lowest ids


@pytest.mark.parametrize("temperature", [*TINY, 0.01, 2.0])
@pytest.mark.parametrize("top_p", [*TINY, 1.0])
def test_probabilities_are_numbers(temperature: float, top_p: float) -> None:
    sampling = SamplingParams(temperature=temperature, top_p=top_p, min_p=5e-324)
    if temperature < 1e-5:
        assert sampling.temperature == 0.0
        return
    for scale in (1e-30, 1.0, 1e4, 1e30):
        p = warp(logits(1, 3, scale), sampling)
        assert p.isfinite().all()
        torch.testing.assert_close(p.sum(-1), torch.ones(3))
    rows = warp_each(logits(1, 2, 1.0), [sampling, SamplingParams(temperature=1.0)])
    assert rows.isfinite().all()


LIKE_GREEDY: list[dict[str, Any]] = [
    *({"temperature": tiny} for tiny in TINY),
    *({"temperature": 0.8, "top_p": tiny} for tiny in TINY),
    {"temperature": 0.8, "top_k": 1},
    {"temperature": 0.8, "min_p": 1.0},
]


async def test_what_leaves_one_token_is_greedy(load_engine: Any, byte_bundle: Bundle) -> None:
    methods, prompt = ["naive", "draft_verify", "ngram", "eagle3"], list(range(10, 20)) * 2
    engine = load_engine(methods, byte_bundle, max_waiting=100)
    asked = [(method, wishes) for wishes in LIKE_GREEDY for method in methods]
    answers = await asyncio.gather(
        *(decode(engine, method, prompt, max_tokens=20, **wishes) for method, wishes in asked)
    )
    for (method, wishes), answer in zip(asked, answers, strict=True):
        assert answer.error is None, (method, wishes)
        if wishes.get("temperature") != 1e-3:
            assert answer.tokens == reference(byte_bundle, prompt, 20), (method, wishes)


async def test_the_least_repetition_penalty_gives_an_answer(load_engine, byte_bundle):
    engine = load_engine(["naive", "draft_verify"], byte_bundle)
    for method, penalty, temperature in itertools.product(
        ("naive", "draft_verify"), (1e-38, 5e-324, 1e-3, 0.01), (0.0, 1.0)
    ):
        wishes = {"repetition_penalty": penalty, "temperature": temperature}
        answer = await decode(engine, method, [1, 2, 3], max_tokens=10, **wishes)
        assert answer.error is None
        assert answer.finish in ("length", "stop")


@pytest.mark.parametrize("spoilt", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_processing_that_leaves_no_number_ends_its_request_alone(
    load_engine, byte_bundle, monkeypatch, spoilt, temperature
):
    engine = load_engine(["naive", "draft_verify"], byte_bundle)
    add_bias = logit_processor.LogitProcessor.add_bias

    def spoil(self: Any, rows: torch.Tensor) -> None:
        add_bias(self, rows)
        if 7 in self.sampling.logit_bias:
            rows[:, 3] = spoilt

    monkeypatch.setattr(logit_processor.LogitProcessor, "add_bias", spoil)
    for _ in range(4):  # more than what makes an engine ill
        bad, biased, plain = await asyncio.gather(
            decode(engine, "naive", [7, 2], logit_bias={7: 1.0}, temperature=temperature),
            decode(engine, "naive", [1, 2], logit_bias={8: 0.0}, max_tokens=20),
            decode(engine, "draft_verify", [1, 2], max_tokens=20),
        )
        assert bad.finish == "error"
        assert bad.request_fault
        assert "logit_bias" in bad.error
        for answer in (biased, plain):
            assert answer.tokens == reference(byte_bundle, [1, 2], 20)
        assert engine.load().healthy
