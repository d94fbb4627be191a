"""The forward's operators against what they stand for."""

import pytest
import torch
import torch.nn.functional as F

from workers.torch_engine.models.operators import RmsNorm, projection, widens_float16

PRECISIONS = [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)]


@pytest.mark.parametrize("rows", [1, 3, 33])
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("biased", [False, True])
def test_a_projection_is_a_linear_layer(rows, dtype, tolerance, biased):
    torch.manual_seed(0)
    weight = torch.randn(48, 64, dtype=dtype)
    bias = torch.randn(48, dtype=dtype) if biased else None
    x = torch.randn(rows, 64, dtype=dtype)
    with torch.inference_mode():
        ours = projection(weight, bias)(x)
    expected = F.linear(x, weight, bias)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, expected, atol=8 * tolerance, rtol=tolerance)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_a_norm_is_the_root_mean_square_norm(scale, dtype, tolerance):
    torch.manual_seed(0)
    weight = torch.randn(320, dtype=dtype)
    x = (scale * torch.randn(7, 320) + scale).to(dtype)
    ours = RmsNorm(weight, 1e-6)(x)
    expected = F.rms_norm(x.double(), (320,), weight.double(), 1e-6)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.double(), expected, atol=tolerance, rtol=tolerance)


def test_a_float32_weight_is_not_rounded_to_its_input() -> None:
    """Gemma adds 1 to small weights: in bfloat16 most of the weight would be gone."""
    x = torch.ones(1, 64, dtype=torch.bfloat16)
    small = RmsNorm(torch.full((64,), 1.01), 1e-6)(x)
    rounded = RmsNorm(torch.ones(64), 1e-6)(x)
    assert small.dtype == torch.bfloat16
    assert (small > rounded).all()


needs_fbgemm = pytest.mark.skipif(
    not widens_float16(), reason="this CPU has no float32 products over float16 weights"
)


@needs_fbgemm
@pytest.mark.parametrize("biased", [False, True])
def test_float32_over_16_bit_weights_is_float32(biased: bool) -> None:
    """Nothing is rounded but the sums; a row's result is the same in any batch, to the bit."""
    torch.manual_seed(0)
    weight = (0.02 * torch.randn(96, 320)).bfloat16().float()
    weight[0, :4] = torch.tensor([0.0, 1e-9, -3e-8, 2.0**-24])
    bias = torch.randn(96) if biased else None
    x = torch.randn(40, 320)
    operator = projection(weight, bias)
    with torch.inference_mode():
        together = operator(x)
        alone = [operator(row[None])[0] for row in x]
        pairs = [operator(x[i : i + 2])[1] for i in range(39)]
        fewer = [operator(x[:rows]) for rows in range(3, 40)]
    exact = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    torch.testing.assert_close(together.double(), exact, atol=2e-6, rtol=2e-6)
    assert torch.equal(together, torch.stack(alone))
    assert torch.equal(together[1:], torch.stack(pairs))
    assert all(torch.equal(together[: len(rows)], rows) for rows in fewer)


@pytest.mark.parametrize("outlier", [0.1, 1e5], ids=["of 24 bits", "beyond float16"])
def test_weights_that_float16_does_not_hold_stay_as_they_are(outlier: float) -> None:
    torch.manual_seed(0)
    weight = (0.02 * torch.randn(48, 64)).bfloat16().float()
    weight[3, 5] = outlier
    x = torch.randn(5, 64)
    with torch.inference_mode():
        assert torch.equal(projection(weight)(x), F.linear(x, weight))
