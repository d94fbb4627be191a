"""The warp against Hugging Face's processors."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from schemas import SamplingParams
from workers.torch_engine.sampling import warp


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
    torch.testing.assert_close(ours, rows.softmax(-1))
