"""Products of weights in groups of 4 and 8 bits against float64, and against themselves."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.torch_engine.models.kernels import block_product
from workers.torch_engine.models.kernels.block_product import (
    MANY_ROWS,
    BlockProduct,
    copy_pays,
    packed_projection,
)
from workers.torch_engine.models.operators import RmsNorm
from workers.torch_engine.models.weights import is_packed, pack, unpacked

pytestmark = pytest.mark.skipif(not block_product.is_built(), reason=block_product.NOT_BUILT)

SIZES = [(48, 64), (40, 96), (16, 32)]
"""Of the kernel's blocks, and of 40 outputs, which are not."""


def four_bits(out: int, features: int) -> torch.Tensor:
    codes = torch.randint(0, 16, (out, features), dtype=torch.uint8)
    scale = (0.02 * torch.rand(out, features // 32) + 0.001).half().float()
    return pack(codes, scale, (-8 * scale + 0.01 * torch.randn_like(scale)).half().float())


def weight_of(kind: str, out: int, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight for the product, and the matrix that it stands for."""
    weight = four_bits(out, features) if kind == "4 bits" else torch.randn(out, features)
    return weight, (unpacked(weight) if is_packed(weight) else weight).double()


def off(ours: torch.Tensor, exact: torch.Tensor) -> float:
    return float((ours.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("kind", ["4 bits", "8 bits"])
@pytest.mark.parametrize(("out", "features"), SIZES)
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 9, 30])
@pytest.mark.parametrize("biased", [False, True])
def test_a_product_is_the_linear_layer(kind, out, features, rows, biased):
    torch.manual_seed(rows)
    weight, exact = weight_of(kind, out, features)
    bias = torch.randn(out) if biased else None
    product = BlockProduct(weight, bias)
    x, residual = torch.randn(rows, features), torch.randn(rows, out)
    norm = RmsNorm(torch.rand(features) + 0.5, 1e-5)
    gated = torch.randn(rows, 2 * features)
    gate, up = gated.double().chunk(2, -1)

    def linear(given: torch.Tensor) -> torch.Tensor:
        return F.linear(given.double(), exact, None if bias is None else bias.double())

    assert off(product(x), linear(x)) < 0.02
    assert off(product(x, residual), linear(x) + residual) < 0.02
    assert off(product.of_normed(x, norm), linear(norm(x))) < 0.02
    assert off(product.of_gated(gated, residual), linear(F.silu(gate) * up) + residual) < 0.02


@pytest.mark.parametrize("kind", ["4 bits", "8 bits"])
@given(rows=st.integers(1, 20), seed=st.integers(0, 999), loud=st.floats(1e-3, 1e3))
@settings(deadline=None, max_examples=40)
def test_a_row_depends_on_nothing_but_its_input(kind, rows, seed, loud):
    """Not on the other rows, the threads or the instructions that the CPU has."""
    torch.manual_seed(seed)
    product = BlockProduct(weight_of(kind, 48, 64)[0], torch.randn(48))
    x = torch.randn(rows, 64) * torch.logspace(-3, 3, rows)[:, None]
    x[0] *= loud
    norm, gated, residual = RmsNorm(torch.rand(64), 1e-5), x.repeat(1, 2), torch.randn(rows, 48)

    def results(first: int, end: int) -> torch.Tensor:
        of = slice(first, end)
        added = product.of_gated(gated[of], residual[of])
        return torch.cat((product(x[of]), product.of_normed(x[of], norm), added), 1)

    together, wide, threads = results(0, rows), product._wide, torch.get_num_threads()
    for row in range(rows):
        assert torch.equal(results(row, row + 1)[0], together[row])
    try:
        product._wide = False
        torch.set_num_threads(3)
        assert torch.equal(results(0, rows), together)
    finally:
        product._wide = wide
        torch.set_num_threads(threads)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("sign", [-1, 1])
def test_sums_of_the_largest_codes_do_not_overflow(wide, sign):
    if wide and not BlockProduct(torch.ones(16, 32))._wide:
        pytest.skip("this CPU has no AVX-512")
    largest = torch.full((16, 64), 15, dtype=torch.uint8)
    scale = torch.full((16, 2), 0.5)
    for weight in (pack(largest, scale, -scale), torch.full((16, 64), 7.0)):
        product = BlockProduct(weight)
        product._wide = wide
        result = product(torch.full((1, 64), 3.0 * sign))
        assert torch.allclose(result, torch.tensor(sign * 1344.0), rtol=1e-3)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_has_no_result_and_harms_no_other(broken):
    for kind in ("4 bits", "8 bits"):
        product = BlockProduct(weight_of(kind, 48, 64)[0])
        x = torch.randn(3, 64)
        whole = product(x)
        x[1, 40] = broken
        result = product(x)
        assert result[1].isnan().all()
        assert torch.equal(result[[0, 2]], whole[[0, 2]])


def test_zeros_stay_zeros():
    product = BlockProduct(torch.randn(16, 64))
    assert not product(torch.zeros(2, 64)).any()
    assert not BlockProduct(torch.zeros(16, 64))(torch.randn(2, 64)).any()


def test_inputs_that_are_no_whole_groups():
    torch.manual_seed(0)
    weight, x = torch.randn(24, 50), torch.randn(5, 50)
    product, norm = BlockProduct(weight), RmsNorm(torch.rand(50), 1e-5)
    gated, residual = torch.randn(5, 100), torch.randn(5, 24)
    gate, up = gated.chunk(2, -1)
    assert off(product(x), (x @ weight.T).double()) < 0.02
    assert off(product.of_normed(x, norm), (norm(x) @ weight.T).double()) < 0.02
    exact = (F.silu(gate) * up) @ weight.T + residual
    assert off(product.of_gated(gated, residual), exact.double()) < 0.02


@pytest.mark.parametrize("copies", [False, True])
def test_a_prefill_reads_the_second_copy(copies):
    torch.manual_seed(0)
    weight, exact = weight_of("4 bits", 48, 64)
    product = packed_projection(weight, copies=copies)
    rows = MANY_ROWS + 1
    x, residual = torch.randn(rows, 64), torch.randn(rows, 48)
    norm, gated = RmsNorm(torch.rand(64) + 0.5, 1e-5), torch.randn(rows, 128)
    assert torch.equal(product(x)[:1], product(x[:1])) is not copies
    assert off(product.of_normed(x, norm), norm(x).double() @ exact.T) < 0.02
    gate, up = gated.double().chunk(2, -1)
    added = (F.silu(gate) * up) @ exact.T + residual
    assert off(product.of_gated(gated, residual), added) < 0.02


@pytest.mark.parametrize("of_copy", [1.0, 3.0])
def test_the_faster_weights_are_chosen_by_a_measurement(monkeypatch, of_copy):
    weight, _ = weight_of("4 bits", 48, 64)
    seconds = iter([[2.0, 9.0], [of_copy, 9.0]])
    monkeypatch.setattr("timeit.repeat", lambda *_, **__: next(seconds))
    assert copy_pays(weight) is (of_copy < 2.0)


def test_rows_in_groups_are_cut_and_joined_like_those_of_a_matrix() -> None:
    torch.manual_seed(0)
    first, second = four_bits(6, 64), four_bits(4, 64)
    joined = torch.cat((first[1:4], second.flip(0)))
    plain = torch.cat((unpacked(first)[1:4], unpacked(second).flip(0)))
    assert is_packed(joined)
    assert torch.equal(unpacked(joined), plain)
