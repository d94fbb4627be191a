"""The operators that a forward spends its time in, as the device runs them fastest."""

import warnings
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

FLOAT16_ERROR = 2.0**-25
"""Half of float16's smallest number: what it loses of a bfloat16 weight at most."""

INT8_LEVELS = 63
"""What the largest weight of a channel is rounded to: not 127, since CPUs without VNNI add products
in pairs to 16 bits, which two of 255 * 127 overflow. Every CPU computes the same."""

TINY = 1e-12
"""Stands for a largest value of 0."""

Operator = Callable[[Tensor], Tensor]
"""[N, features in] -> [N, features out], weights included."""

Projection = Callable[[Tensor, Tensor | None], Operator]
"""A weight [out, in] and perhaps a bias [out] -> an operator."""

PACKED_FOR = 1
"""Rows that packed weights are laid out for; measured, other counts run as fast with them."""
KERNEL_ROWS = 6
"""Rows that FBGEMM computes together with AVX2; kernels for one or two add in another order."""


def projection(weight: Tensor, bias: Tensor | None = None) -> Operator:
    """x [N, in] -> x @ weight.T + bias, weight [out, in] and bias [out] in the dtype of x.

    For a few tokens the weights are read once and hardly computed with, so reading few bytes in
    the order in which the kernel wants them is most of the speed. On CPUs with bfloat16 arithmetic
    they are laid out so by oneDNN, through the two operators that torch.compile freezes weights
    with. In float32, weights that float16 holds (those of a 16-bit checkpoint) are kept in it by
    FBGEMM, which widens them as it reads: float32 arithmetic on half the bytes, and a row's result
    does not depend on the other rows. Elsewhere weights stay as they are.
    """
    weight = weight.contiguous()
    if _packs(weight):
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_FOR)
        multiply = torch.ops.mkldnn._linear_pointwise.default
        return lambda x: multiply(x, packed, bias, "none", [], "")
    if _fits_float16(weight):
        halved = torch.ops.quantized.linear_prepack_fp16(weight, bias)
        widen = torch.ops.quantized.linear_dynamic_fp16.default
        if "AVX512" in torch.backends.cpu.get_cpu_capability():
            return lambda x: widen(x, halved)
        return lambda x: widen(_filled(x), halved)[: len(x)]
    return lambda x: F.linear(x, weight, bias)


def _filled(x: Tensor) -> Tensor:
    """x [N, in] with as many more rows as keep any from a kernel for one or two."""
    rest = len(x) % KERNEL_ROWS
    return F.pad(x, (0, 0, 0, 3 - rest)) if rest in (1, 2) else x


def int8_projection(weight: Tensor, bias: Tensor | None = None) -> Operator:
    """As `projection`, in products of integers on CPUs; x and the result are float32.

    Weights are rounded to whole multiples of their output channel's largest over INT8_LEVELS,
    inputs by FBGEMM to 8 bits of the range that it finds over all rows. Each row is brought to
    [-1, 1] by its own largest value before, and two more inputs of 1 and -1, whose weights are 0,
    make that the range whatever the rows are: so a row's result does not depend on its batch.
    """
    scale = weight.float().abs().amax(1).clamp_min(TINY) / INT8_LEVELS
    with warnings.catch_warnings():
        # what a later torch will have instead is not in this one
        warnings.filterwarnings("ignore", message=".*quantized tensor creation functions")
        rounded = torch.quantize_per_channel(
            F.pad(weight.float(), (0, 2)), scale, torch.zeros(len(weight)).long(), 0, torch.qint8
        )
    packed = torch.ops.quantized.linear_prepack(rounded, None)
    multiply = torch.ops.quantized.linear_dynamic.default
    ends = torch.tensor([[1.0, -1.0]])

    def project(x: Tensor) -> Tensor:
        largest = x.abs().amax(-1, keepdim=True).clamp_min(TINY)
        given = torch.cat((x / largest, ends.expand(len(x), 2)), -1)
        product: Tensor = multiply(given, packed).mul_(largest)
        return product if bias is None else product.add_(bias)

    return project


def rms_norm(weight: Tensor, eps: float) -> Operator:
    """Root mean square norm over the last dimension; the result has the dtype of x.

    A float32 weight beside a narrower x is applied before the result is rounded.
    """
    if weight.device.type == "cpu":
        doubled = torch.cat((weight, weight))
        return partial(_norm_by_layer_norm, weight=doubled, eps=eps)
    return partial(_norm, weight=weight, eps=eps)


def computes_bfloat16() -> bool:
    """Whether this CPU does, by oneDNN; torch may be built without it."""
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return supported is not None and bool(supported())


def widens_float16() -> bool:
    """Whether products in float32 can read weights kept in float16 here."""
    return "fbgemm" in torch.backends.quantized.supported_engines


def _packs(weight: Tensor) -> bool:
    if weight.dtype != torch.bfloat16 or weight.device.type != "cpu":
        return False
    # oneDNN refuses to pack a single row
    return len(weight) > 1 and computes_bfloat16()


def _fits_float16(weight: Tensor) -> bool:
    if weight.dtype != torch.float32 or weight.device.type != "cpu":
        return False
    if not widens_float16():
        return False
    return bool(((weight - weight.half().float()).abs() <= FLOAT16_ERROR).all())


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    if weight.dtype == x.dtype:
        return F.rms_norm(x, weight.shape, weight, eps)
    return F.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)


def _norm_by_layer_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The mean of [x, -x] is 0 and its variance the mean square of x; on the CPU layer_norm is one
    kernel, rms_norm eight."""
    mirrored = F.layer_norm(torch.cat((x, -x), -1), weight.shape, weight, None, eps)
    return mirrored[..., : x.shape[-1]]
