"""The forward's operators against what they stand for."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.torch_engine.models import operators
from workers.torch_engine.models.block_weights import is_packed, pack, unpacked
from workers.torch_engine.models.operators import (
    int8_projection,
    projection,
    rms_norm,
    widens_float16,
)

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
    ours = rms_norm(weight, 1e-6)(x)
    expected = F.rms_norm(x.double(), (320,), weight.double(), 1e-6)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.double(), expected, atol=tolerance, rtol=tolerance)


def test_a_float32_weight_is_not_rounded_to_its_input() -> None:
    """Gemma adds 1 to small weights: in bfloat16 most of the weight would be gone."""
    x = torch.ones(1, 64, dtype=torch.bfloat16)
    small = rms_norm(torch.full((64,), 1.01), 1e-6)(x)
    rounded = rms_norm(torch.ones(64), 1e-6)(x)
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


@pytest.mark.parametrize("biased", [False, True])
def test_an_int8_projection_is_near_the_linear_layer(biased: bool) -> None:
    torch.manual_seed(0)
    weight, bias = torch.randn(96, 128), torch.randn(96) if biased else None
    x = torch.randn(16, 128) * torch.logspace(-3, 3, 16)[:, None]
    x[3] = 0.0
    ours, exact = int8_projection(weight, bias)(x), F.linear(x, weight, bias)
    plain = F.linear(x, weight)
    off = (ours - exact).square().mean(1).sqrt() / plain.square().mean(1).sqrt().clamp_min(1e-9)
    assert off.max() < 0.02
    assert torch.equal(ours[3], exact[3])


def test_pairs_of_the_largest_products_do_not_overflow() -> None:
    """Inputs and weights all at their largest: what 16-bit sums of pairs would cut off."""
    project = int8_projection(torch.ones(8, 64))
    assert torch.allclose(project(torch.ones(1, 64)), torch.full((1, 8), 64.0), rtol=1e-2)


def four_bits(out: int, features: int = 64) -> torch.Tensor:
    codes = torch.randint(0, 16, (out, features), dtype=torch.uint8)
    scale = 0.02 * torch.rand(out, features // 32) + 0.001
    return pack(codes, scale, -8 * scale + 0.01 * torch.randn_like(scale))


def test_rows_in_groups_are_cut_and_joined_like_those_of_a_matrix() -> None:
    torch.manual_seed(0)
    first, second = four_bits(6), four_bits(4)
    joined = torch.cat((first[1:4], second.flip(0)))
    plain = torch.cat((unpacked(first)[1:4], unpacked(second).flip(0)))
    assert is_packed(joined)
    assert torch.equal(unpacked(joined), plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("out", [48, 40], ids=["of the kernel's size", "of another size"])
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_a_four_bit_projection_is_the_linear_layer(dtype, out, copies, biased):
    torch.manual_seed(0)
    weight, bias = four_bits(out), torch.randn(out) if biased else None
    project = projection(weight, bias, copies=copies)
    exact = unpacked(weight).double()
    for rows in (1, 5, 33):
        x = torch.randn(rows, 64, dtype=dtype)
        expected = F.linear(x.double(), exact, None if bias is None else bias.double())
        torch.testing.assert_close(project(x).double(), expected, atol=0.04, rtol=0.02)


@pytest.mark.parametrize("kind", ["int8", "four bits"])
@given(rows=st.integers(1, 9), seed=st.integers(0, 999), loud=st.floats(1e-3, 1e3))
@settings(deadline=None, max_examples=40)
def test_a_row_does_not_depend_on_its_batch(kind: str, rows: int, seed: int, loud: float) -> None:
    torch.manual_seed(seed)
    if kind == "int8":
        project = int8_projection(torch.randn(48, 64), torch.randn(48))
    else:
        project = projection(four_bits(48), torch.randn(48), copies=False)
    x = torch.randn(rows, 64) * torch.logspace(-3, 3, rows)[:, None]
    x[0] *= loud
    together = project(x)
    for row in range(rows):
        assert torch.equal(project(x[row : row + 1])[0], together[row])


def test_each_kernel_computes_the_numbers_of_rows_that_it_is_faster_for(monkeypatch):
    """Kernels compute rows in blocks, here of four and of six."""

    def timed(products, x):
        blocks = -(-len(x) // 4), -(-len(x) // 6)
        return blocks if products[0].features[0] == 32 else (2, 1)

    monkeypatch.setattr(operators, "_fastest", timed)
    first, other, second = (projection(four_bits(out)) for out in (32, 48, 32))
    found = operators.choose_by_rows([first, other, second])
    assert found == {(32, 64): [1, 2, 3, 4, 7, 8], (48, 64): []}
    x = torch.randn(8, 64)
    for product in (first, second):
        assert torch.equal(product(x), product.few(x))
        assert torch.equal(product(x[:6]), product.many(x[:6]))
    assert torch.equal(other(x), other.many(x))
