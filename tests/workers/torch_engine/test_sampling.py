"""The warp against Hugging Face's processors."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from schemas import SamplingParams
from workers.torch_engine.distribution import draw, warp, warp_each


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**31),
    st.floats(0.05, 2.0),
    st.integers(0, 25),
    st.floats(0.05, 1.0),
)
def test_warp_equals_hugging_face(seed: int, temperature: float, top_k: int, top_p: float) -> None:
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(seed)) * 3
    logits[1, 4:8] = logits[1, 3]
    rows = TemperatureLogitsWarper(temperature)(None, logits)
    if top_k:
        rows = TopKLogitsWarper(top_k)(None, rows)
    if top_p < 1.0:
        rows = TopPLogitsWarper(top_p)(None, rows)
    ours = warp(logits, SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p))
    theirs = rows.softmax(-1)
    torch.testing.assert_close(ours[::2], theirs[::2])
    # Hugging Face's sort is not stable: which of the equal scores of row 1 stay is not defined.
    torch.testing.assert_close(ours[1].sort().values, theirs[1].sort().values)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.3, 2.0), st.floats(0.01, 1.0), st.integers(0, 9))
def test_min_p_comes_between_temperature_and_top_k(
    seed: int, temperature: float, min_p: float, top_k: int
) -> None:
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(seed)) * 3
    rows = TemperatureLogitsWarper(temperature)(None, logits)
    rows = MinPLogitsWarper(min_p)(None, rows)
    if top_k:
        rows = TopKLogitsWarper(top_k)(None, rows)
    rows = TopPLogitsWarper(0.7)(None, rows)
    asked = SamplingParams(temperature=temperature, min_p=min_p, top_k=top_k, top_p=0.7)
    torch.testing.assert_close(warp(logits, asked), rows.softmax(-1))


def test_rows_keep_their_own_parameters() -> None:
    logits = torch.randn(4, 9, generator=torch.Generator().manual_seed(1))
    cool, narrow = SamplingParams(temperature=0.3), SamplingParams(temperature=1.0, top_k=2)
    each = [cool, narrow, cool, narrow.model_copy(update={"min_p": 0.9})]
    alone = torch.cat([warp(row[None], s) for row, s in zip(logits, each, strict=True)])
    torch.testing.assert_close(warp_each(logits, each), alone)


@settings(max_examples=100, deadline=None)
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
