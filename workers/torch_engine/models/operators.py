"""Operators of a forward, in the form that is fastest on the device."""

import os
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from workers.cpu_arithmetic import computes_bfloat16

FLOAT16_ERROR = 2.0**-25
"""Half of float16's smallest number: the most that a bfloat16 weight loses in float16."""

Operator = Callable[[Tensor], Tensor]
"""[N, features in] -> [N, features out], weights included."""

Projection = Callable[[Tensor, Tensor | None], Operator]
"""A weight [out, in] and an optional bias [out] -> an operator."""

ONEDNN_ROWS = 1
"""Rows that oneDNN's weights are laid out for. Other counts run as fast, as measured."""
KERNEL_ROWS = 6
"""Rows that FBGEMM computes together with AVX2; kernels for one or two add in another order."""


def projection(weight: Tensor, bias: Tensor | None = None) -> Operator:
    """Return x [N, in] -> x @ weight.T + bias, for x and weights of one dtype.

    With few tokens, reading the weights takes most of the time. CPUs with bfloat16 arithmetic use
    oneDNN's layout, through the operators with which torch.compile freezes weights. In float32,
    weights that float16 holds exactly (those of a 16-bit checkpoint) are stored in float16, and
    FBGEMM widens them as it reads: half the bytes with float32 arithmetic, and a row's result does
    not depend on the other rows. Elsewhere weights stay as they are.
    """
    if weight.device.type == "cpu" and weight.dtype == torch.float32:
        return _float32(weight, bias)
    if _onednn_takes(weight):
        return _onednn(weight, bias)
    weight = weight.contiguous()
    return lambda x: F.linear(x, weight, bias)


def sixteen_bits(weight: Tensor, bias: Tensor | None) -> Operator:
    """Return the product of many rows in float32 and a bfloat16 weight; the result is float32."""
    if computes_bfloat16():
        product = _onednn(weight, None if bias is None else bias.bfloat16())
        return lambda x: product(x.bfloat16()).float()
    return _float32(weight.float(), bias)


def _float32(weight: Tensor, bias: Tensor | None) -> Operator:
    """Return the product of a float32 weight and x."""
    weight = weight.contiguous()
    if not _fits_float16(weight):
        return lambda x: F.linear(x, weight, bias)
    halved = torch.ops.quantized.linear_prepack_fp16(weight, bias)
    widen = torch.ops.quantized.linear_dynamic_fp16.default
    if "AVX512" in torch.backends.cpu.get_cpu_capability():
        return lambda x: widen(x, halved)
    return lambda x: widen(_filled(x), halved)[: len(x)]


def _onednn(weight: Tensor, bias: Tensor | None) -> Operator:
    """Return the product of a bfloat16 weight and x, by the operators with which torch.compile
    freezes weights."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ONEDNN_ROWS)
    multiply = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: multiply(x, packed, bias, "none", [], "")


def _filled(x: Tensor) -> Tensor:
    """Return x [N, in] with more rows, so that no row goes to a kernel for one or two rows."""
    rest = len(x) % KERNEL_ROWS
    return F.pad(x, (0, 0, 0, 3 - rest)) if rest in (1, 2) else x


class RmsNorm:
    """The root mean square norm over the last dimension; the result has the dtype of x.

    weight: [features]. A float32 weight is applied to a narrower x before the result is rounded.
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight, self.eps = weight, eps
        self._doubled = torch.cat((weight, weight)) if weight.device.type == "cpu" else None

    def __call__(self, x: Tensor) -> Tensor:
        """Return the norm of x [..., features]."""
        weight, doubled, eps = self.weight, self._doubled, self.eps
        if doubled is not None:
            # Of [x, -x] the mean is 0 and the variance the mean square of x: on the CPU layer_norm
            # is one kernel and rms_norm eight.
            mirrored = F.layer_norm(torch.cat((x, -x), -1), doubled.shape, doubled, None, eps)
            return mirrored[..., : len(weight)]
        if weight.dtype == x.dtype:
            return F.rms_norm(x, weight.shape, weight, eps)
        return F.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)


def has_amx() -> bool:
    """Return whether oneDNN multiplies tiles of bfloat16 here (Intel's AMX)."""
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA", "AMX")
    return computes_bfloat16() and torch.cpu._is_amx_tile_supported() and "AMX" in allowed


def widens_float16() -> bool:
    """Return whether float32 products can read weights stored in float16 here."""
    return "fbgemm" in torch.backends.quantized.supported_engines


def _onednn_takes(weight: Tensor) -> bool:
    if weight.dtype != torch.bfloat16 or weight.device.type != "cpu":
        return False
    # oneDNN refuses to pack a single row
    return len(weight) > 1 and computes_bfloat16()


def _fits_float16(weight: Tensor) -> bool:
    if not widens_float16():
        return False
    return bool(((weight - weight.half().float()).abs() <= FLOAT16_ERROR).all())
