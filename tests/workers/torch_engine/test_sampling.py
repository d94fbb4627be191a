"""Temperature, min-p, top-k, top-p and draws, against Hugging Face's processors."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_reference import warped_row

from schemas import SamplingParams
from workers.torch_engine.distribution import draw, warp, warp_each

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
