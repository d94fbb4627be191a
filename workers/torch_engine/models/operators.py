"""The operators that a forward spends its time in, as the device runs them fastest."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

Operator = Callable[[Tensor], Tensor]
"""[N, features in] -> [N, features out], weights included."""

PACKED_FOR = 1
"""Rows that packed weights are laid out for; measured, other counts run as fast with them."""


def projection(weight: Tensor, bias: Tensor | None = None) -> Operator:
    """x [N, in] -> x @ weight.T + bias, weight [out, in] and bias [out] in the dtype of x.

    For a few tokens the weights are read once and hardly computed with, so reading them in the
    order in which the kernel wants them is most of the speed. On CPUs with bfloat16 arithmetic
    they are laid out so by oneDNN, through the two operators that torch.compile freezes weights
    with; elsewhere they stay as they are.
    """
    weight = weight.contiguous()
    if not _packs(weight):
        return lambda x: F.linear(x, weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_FOR)
    multiply = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: multiply(x, packed, bias, "none", [], "")


def rms_norm(weight: Tensor, eps: float) -> Operator:
    """Root mean square norm over the last dimension; the result has the dtype of x.

    A float32 weight beside a narrower x is applied before the result is rounded.
    """
    if weight.device.type == "cpu":
        doubled = torch.cat((weight, weight))
        return partial(_norm_by_layer_norm, weight=doubled, eps=eps)
    return partial(_norm, weight=weight, eps=eps)


def _packs(weight: Tensor) -> bool:
    if weight.dtype != torch.bfloat16 or weight.device.type != "cpu":
        return False
    # absent where torch was built without oneDNN, which refuses to pack a single row
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return len(weight) > 1 and supported is not None and bool(supported())


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    if weight.dtype == x.dtype:
        return F.rms_norm(x, weight.shape, weight, eps)
    return F.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)


def _norm_by_layer_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The mean of [x, -x] is 0 and its variance the mean square of x; on the CPU layer_norm is one
    kernel, rms_norm eight."""
    mirrored = F.layer_norm(torch.cat((x, -x), -1), weight.shape, weight, None, eps)
    return mirrored[..., : x.shape[-1]]
