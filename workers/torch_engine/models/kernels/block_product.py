"""Products of float32 inputs and weights in groups of 32 codes of 4 or 8 bits, on x86 CPUs.

block_product.c computes them. Inputs are rounded to 8 bits, each group of 32 by its own largest
value, as in llama.cpp. A row's result depends neither on the other rows nor on the number of
threads nor on the CPU. NaN or infinity in a row makes the row's result NaN.
"""

import timeit
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from workers.torch_engine.models.operators import Operator, RmsNorm, sixteen_bits
from workers.torch_engine.models.weights import GROUP, is_packed, parts, unpacked

try:  # torch first: the module computes with the threads of torch's OpenMP
    from workers.torch_engine.models.kernels import _kernels
except ImportError:
    _kernels = None  # type: ignore[assignment]

BLOCK = 16
"""Output features that are computed together."""
LARGEST, MIDDLE = 127, 128
"""The largest 8-bit code is MIDDLE + LARGEST; MIDDLE stands for 0."""
MANY_ROWS = 128
"""Few verifications have more rows. Prefills have, for which 16-bit weights can be faster."""
REPEATS = 5
NOT_BUILT = (
    "engine.dtype: q4 and int8 need a CPU with AVX2 and a compiled kernel: install a C compiler, "
    "then `make install` again, or use float32 or bfloat16"
)


def is_built() -> bool:
    """Return whether the kernel is compiled and this CPU has what it needs."""
    return _kernels is not None and bool(_kernels.HAS_AVX2)


def _is_wide() -> bool:
    """Return whether to use AVX-512, which ATEN_CPU_CAPABILITY=avx2 switches off in torch too."""
    allowed = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return allowed and bool(_kernels.HAS_AVX512)


class BlockProduct:
    """x [N, in] -> x @ weight.T + bias, in float32. Exists only where `is_built`.

    weight: [out, in] in groups of 4 bits (see weights), or of numbers, which are rounded to 8
    bits. many: the same product, for more than MANY_ROWS rows.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, *, many: Operator | None = None
    ) -> None:
        self._many, self._wide = many, _is_wide()
        self._features = len(weight)
        self._bias = None if bias is None else bias.float()
        weight = F.pad(weight, (0, 0, 0, -len(weight) % BLOCK))
        self._is_whole = is_packed(weight) or weight.shape[1] % GROUP == 0
        if is_packed(weight):
            bits, self._packed = 4, _four_bits(weight)
        else:
            bits, self._packed = 8, _eight_bits(F.pad(weight, (0, -weight.shape[1] % GROUP)))
        self._inputs, self._outputs = self._packed.shape[1] * GROUP, len(weight)
        self._weights = (self._packed.data_ptr(), bits, self._packed.shape[1], self._outputs)

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Return the product, added to `residual` [N, out] if that is given."""
        if self._many is not None and len(x) > MANY_ROWS:
            y = self._many(x)
            return y if residual is None else residual + y
        if x.shape[1] != self._inputs:
            x = F.pad(x, (0, self._inputs - x.shape[1]))
        return self._compute(x, self._inputs, residual)

    def of_normed(self, x: Tensor, norm: RmsNorm) -> Tensor:
        """Return the product of norm(x)."""
        if not self._is_whole or (self._many is not None and len(x) > MANY_ROWS):
            return self(norm(x))
        return self._compute(x, self._inputs, norm=(norm.weight.data_ptr(), norm.eps))

    def of_gated(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return the product of silu(gate) * up, for x [N, 2 * in] of both, and add `residual`."""
        if not self._is_whole or (self._many is not None and len(x) > MANY_ROWS):
            gate, up = x.chunk(2, -1)
            return self(F.silu(gate).mul_(up), residual)
        return self._compute(x, 2 * self._inputs, residual)

    def _compute(
        self,
        x: Tensor,
        width: int,
        residual: Tensor | None = None,
        norm: tuple[int, float] = (0, 0.0),
    ) -> Tensor:
        if x.dtype != torch.float32 or not x.is_contiguous():
            x = x.float().contiguous()
        y = torch.empty(len(x), self._outputs)
        added = residual is not None and self._features == self._outputs
        _kernels.multiply(
            (x.data_ptr(), len(x), width != self._inputs),
            norm,
            self._weights,
            (residual.data_ptr() if residual is not None and added else 0, y.data_ptr()),
            self._wide,
            torch.get_num_threads(),
        )
        if self._features != self._outputs:
            y = y[:, : self._features]
        if self._bias is not None:
            y = y.add_(self._bias)
        return y if residual is None or added else residual + y


def packed_projection(
    weight: Tensor, bias: Tensor | None = None, *, copies: bool = True
) -> BlockProduct:
    """Return the product of float32 x and weights of 4 bits, or of 8 if they are not packed.

    copies: whether prefills may read 4-bit weights from a second copy of 16 bits.
    """
    many = sixteen_bits(unpacked(weight), bias) if copies and is_packed(weight) else None
    return BlockProduct(weight, bias, many=many)


def copy_pays(weight: Tensor) -> bool:
    """Return whether a product of packed weights is faster here from 16 bits, for many rows."""
    matrix = unpacked(weight)
    x = torch.randn(2 * MANY_ROWS, matrix.shape[1])
    packed, copy = (
        min(timeit.repeat(partial(product, x), number=1, repeat=REPEATS))
        for product in (BlockProduct(weight), sixteen_bits(matrix, None))
    )
    return copy < packed


def _four_bits(weight: Tensor) -> Tensor:
    """Return the kernel's bytes [out / 16, groups, bytes of a group]."""
    codes, scale, offset = parts(weight)
    quads = _quads(codes)
    half = quads.shape[2] // 2
    pairs = quads[:, :, :half] | quads[:, :, half:] << 4
    return torch.cat((pairs.flatten(2), _numbers(scale), _numbers(offset)), -1)


def _eight_bits(weight: Tensor) -> Tensor:
    """Round numbers [out, in] to 8 bits; return the kernel's bytes."""
    groups = weight.float().view(len(weight), -1, GROUP)
    scale = (groups.abs().amax(-1) / LARGEST).half().float()
    steps = (groups / scale[..., None]).nan_to_num_(0.0, 0.0, 0.0)
    codes = steps.round_().clamp_(-LARGEST, LARGEST).add_(MIDDLE).to(torch.uint8)
    return torch.cat((_quads(codes).flatten(2), _numbers(scale)), -1)


def _quads(codes: Tensor) -> Tensor:
    """Order codes [out, groups, 32] as [out / 16, groups, 8, 16, 4]."""
    return codes.view(-1, BLOCK, codes.shape[1], GROUP // 4, 4).permute(0, 2, 3, 1, 4).contiguous()


def _numbers(each: Tensor) -> Tensor:
    """Order numbers [out, groups] as float16's bytes [out / 16, groups, 32]."""
    blocks = each.half().view(-1, BLOCK, each.shape[1]).transpose(1, 2)
    return blocks.contiguous().view(torch.uint8)
