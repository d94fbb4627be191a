"""The operators that a forward spends its time in, as the device runs them fastest."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

FLOAT16_ERROR = 2.0**-25
"""Half of float16's smallest number: what it loses of a bfloat16 weight at most."""

Operator = Callable[[Tensor], Tensor]
"""[N, features in] -> [N, features out], weights included."""

PACKED_FOR = 1
"""Rows that packed weights are laid out for; measured, other counts run as fast with them."""


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
        return lambda x: widen(x, halved)
    return lambda x: F.linear(x, weight, bias)


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
