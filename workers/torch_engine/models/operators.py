"""Operators of a forward, in the form that is fastest on the device."""

import os
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from workers.cpu_arithmetic import computes_bfloat16
from workers.torch_engine.models.block_weights import GROUP, is_packed, parts, unpacked

FLOAT16_ERROR = 2.0**-25
"""Half of float16's smallest number: the most that a bfloat16 weight loses in float16."""

INT8_LEVELS = 63
"""The integer of a channel's largest weight. 127 would overflow on CPUs without VNNI, which add
pairs of products in 16 bits; with 63 every CPU computes the same."""

TINY = 1e-12
"""Replaces a largest value of 0."""

Operator = Callable[[Tensor], Tensor]
"""[N, features in] -> [N, features out], weights included."""

Projection = Callable[[Tensor, Tensor | None], Operator]
"""A weight [out, in] and an optional bias [out] -> an operator."""

ONEDNN_ROWS = 1
"""Rows that oneDNN's weights are laid out for. Other counts run as fast, as measured."""
KERNEL_ROWS = 6
"""Rows that FBGEMM computes together with AVX2; kernels for one or two add in another order."""
TIMED_ROWS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24)
"""Numbers of rows for which two kernels are compared."""
TIMED_WEIGHTS = 2**26
"""More than a core's own caches hold, in 4 bits."""
REPEATS = 2
KERNEL_OUTPUTS = 16
"""The 4-bit kernel computes multiples of so many output features."""
MIDDLE_CODE = 8
"""The 4-bit code that the kernel takes for zero."""


def projection(weight: Tensor, bias: Tensor | None = None, *, copies: bool = True) -> Operator:
    """Return x [N, in] -> x @ weight.T + bias, for x and weights of one dtype.

    With few tokens, reading the weights takes most of the time. CPUs with bfloat16 arithmetic use
    oneDNN's layout, through the operators with which torch.compile freezes weights. In float32,
    weights that float16 holds exactly (those of a 16-bit checkpoint) are stored in float16, and
    FBGEMM widens them as it reads: half the bytes with float32 arithmetic, and a row's result does
    not depend on the other rows. Elsewhere weights stay as they are.

    A weight in groups of 4 bits (see block_weights) takes x in float32 or bfloat16; more than a few
    rows are computed from a second copy of 16 bits, unless `copies` is false.
    """
    if is_packed(weight):
        return four_bit_projection(weight, bias, copies=copies)
    if weight.device.type == "cpu" and weight.dtype == torch.float32:
        return _float32(weight, bias)
    if _onednn_takes(weight):
        return _onednn(weight, bias)
    weight = weight.contiguous()
    return lambda x: F.linear(x, weight, bias)


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


class ByRows:
    """One product by two kernels. rows: numbers of rows that `few` computes, the others are left to
    `many` (see `choose_by_rows`). features: (out, in)."""

    def __init__(self, features: tuple[int, int], few: Operator, many: Operator) -> None:
        self.features, self.few, self.many = features, few, many
        self.rows = frozenset(range(1, TIMED_ROWS[-1]))

    def __call__(self, x: Tensor) -> Tensor:
        return self.few(x) if len(x) in self.rows else self.many(x)


def four_bit_projection(weight: Tensor, bias: Tensor | None, *, copies: bool) -> Operator:
    """Return the product of a weight in groups of 4 bits and x in float32 or bfloat16.

    torch's kernel computes few rows in bfloat16, with scales rounded to bfloat16; a row's result
    does not depend on the other rows. More rows are computed from `unpacked` weights if `copies`.
    """
    codes, scale, offset = parts(weight)
    rounded = None if bias is None else bias.bfloat16()
    if len(weight) % KERNEL_OUTPUTS:
        return _wide(unpacked(weight), rounded)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.flatten(1).int(), 1)
    affine = torch.stack((scale, offset + MIDDLE_CODE * scale), -1).transpose(0, 1)
    numbers = affine.bfloat16().contiguous()
    multiply = torch.ops.aten._weight_int4pack_mm_for_cpu.default

    def few(x: Tensor) -> Tensor:
        y: Tensor = multiply(x.bfloat16(), packed, GROUP, numbers)
        return y if rounded is None else y.add_(rounded)

    if not copies:
        return few
    return ByRows((len(weight), codes[0].numel()), few, _wide(unpacked(weight), rounded))


@torch.inference_mode()
def choose_by_rows(products: Iterable[ByRows]) -> dict[tuple[int, int], list[int]]:
    """Find the numbers of rows that each product's first kernel is the faster one for, by features.

    Kernels compute rows in blocks, so that neither is the faster one up to some number only.
    Products of the same features are timed one after the other, so that a weight comes from where
    it comes from in a forward. It takes about a second.
    """
    alike = defaultdict[tuple[int, int], list[ByRows]](list)
    for product in products:
        alike[product.features].append(product)
    found = {}
    for (outputs, inputs), group in alike.items():
        timed = group[: max(1, TIMED_WEIGHTS // (outputs * inputs))]
        least, chosen = 1, list[int]()
        for rows in TIMED_ROWS:
            few, many = _fastest(timed, torch.ones(rows, inputs))
            chosen += range(least, rows + 1) if few <= many else ()
            least = rows + 1
        for product in group:
            product.rows = frozenset(chosen)
        found[outputs, inputs] = chosen
    return found


def _fastest(products: Sequence[ByRows], x: Tensor) -> tuple[float, float]:
    """Return the least seconds of the first kernels and of the second ones, timed in turns."""
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        for product in products:
            product.few(x)
        between = time.perf_counter()
        for product in products:
            product.many(x)
        found.append((between - began, time.perf_counter() - between))
    few, many = zip(*found, strict=True)
    return min(few), min(many)


def _wide(weight: Tensor, bias: Tensor | None) -> Operator:
    """Return the product of many rows in float32 or bfloat16 and a bfloat16 weight."""
    if computes_bfloat16():
        product = _onednn(weight, bias)
        return lambda x: product(x.bfloat16())
    widened = _float32(weight.float(), None if bias is None else bias.float())
    return lambda x: widened(x.float())


def _filled(x: Tensor) -> Tensor:
    """Return x [N, in] with more rows, so that no row goes to a kernel for one or two rows."""
    rest = len(x) % KERNEL_ROWS
    return F.pad(x, (0, 0, 0, 3 - rest)) if rest in (1, 2) else x


def int8_projection(weight: Tensor, bias: Tensor | None = None) -> Operator:
    """Return a `projection` in products of integers on CPUs; x and the result are float32.

    Weights are rounded to multiples of their output channel's largest weight over INT8_LEVELS.
    FBGEMM rounds inputs to 8 bits of the range over all rows. Each row is first scaled to [-1, 1]
    by its own largest value, and two inputs of 1 and -1 with weights of 0 fix the range, so that a
    row's result does not depend on its batch. NaN has no place in a range: a row with NaN or
    infinity is computed from zeros and multiplied by its largest value, which makes it NaN.
    """
    scale = weight.float().abs().amax(1).clamp_min(TINY) / INT8_LEVELS
    with warnings.catch_warnings():
        # The replacement for these functions is not in this version of torch.
        warnings.filterwarnings("ignore", message=".*quantized tensor creation functions")
        rounded = torch.quantize_per_channel(
            F.pad(weight.float(), (0, 2)), scale, torch.zeros(len(weight)).long(), 0, torch.qint8
        )
    packed = torch.ops.quantized.linear_prepack(rounded, None)
    multiply = torch.ops.quantized.linear_dynamic.default
    ends = torch.tensor([[1.0, -1.0]])

    def project(x: Tensor) -> Tensor:
        largest = x.abs().amax(-1, keepdim=True).clamp_min(TINY)
        scaled = (x / largest).nan_to_num_()
        given = torch.cat((scaled, ends.expand(len(x), 2)), -1)
        product: Tensor = multiply(given, packed).mul_(largest)
        return product if bias is None else product.add_(bias)

    return project


def rms_norm(weight: Tensor, eps: float) -> Operator:
    """Return the root mean square norm over the last dimension; the result has the dtype of x.

    A float32 weight is applied to a narrower x before the result is rounded.
    """
    if weight.device.type == "cpu":
        doubled = torch.cat((weight, weight))
        return partial(_norm_by_layer_norm, weight=doubled, eps=eps)
    return partial(_norm, weight=weight, eps=eps)


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


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    if weight.dtype == x.dtype:
        return F.rms_norm(x, weight.shape, weight, eps)
    return F.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)


def _norm_by_layer_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Compute the norm as layer_norm of [x, -x], whose mean is 0 and variance the mean square of x.

    On the CPU layer_norm is one kernel and rms_norm eight.
    """
    mirrored = F.layer_norm(torch.cat((x, -x), -1), weight.shape, weight, None, eps)
    return mirrored[..., : x.shape[-1]]
