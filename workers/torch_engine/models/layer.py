"""One decoder block's weights, fused and reordered for our forward."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from workers.torch_engine.models.kernels.block_product import BlockProduct
from workers.torch_engine.models.operators import Operator, Projection, RmsNorm, projection
from workers.torch_engine.models.shape import LlamaShape
from workers.torch_engine.models.weights import Take

ACTIVATIONS: dict[str, Operator] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}

Addition = Callable[[Tensor, Tensor], Tensor]
"""x [N, features in], residual stream [N, hidden] -> the residual stream after it."""


@dataclass(slots=True)
class Layer:
    """attention_in: the residual stream -> [N, (heads + 2 kv_heads) * head_dim]; out: what
    attention heard, added; mlp_in: the residual stream -> [N, 2 * ffn], gates and values; down:
    their products, added. Norms are included.

    qk_norm: [heads + kv_heads, head_dim] float32, None in models without. rotary, view: indices of
    the layer's table and layout among the model's.
    """

    attention_in: Operator
    qk_norm: Tensor | None
    out: Addition
    mlp_in: Operator
    down: Addition
    rotary: int = 0
    view: int = 0


def build_layer(
    take: Take,
    shape: LlamaShape,
    index: int,
    *,
    width: int | None = None,
    project: Projection = projection,
) -> Layer:
    """Read block `index`.

    take: of the block's own tensors. width: numbers of a token that `attention_in` reads without
    a norm; None: the residual stream, with a norm. project: makes operators of matrices.
    """
    take_norm, hidden = norm_taker(take, shape), shape.hidden

    def norm(name: str) -> RmsNorm:
        return RmsNorm(take_norm(f"{name}_layernorm.weight", hidden), shape.eps)

    dims = shape.each_attention[index].rotary.dims
    qkv = project(
        _qkv(take, shape, dims, "weight", width or hidden),
        _qkv(take, shape, dims, "bias") if shape.qkv_bias else None,
    )
    gate_up = project(
        _gate_up(take, shape, "weight", hidden),
        _gate_up(take, shape, "bias") if shape.mlp_bias else None,
    )
    out, down = (
        project(
            take(f"{name}.weight", hidden, features),
            take(f"{name}.bias", hidden) if biased else None,
        )
        for name, features, biased in (
            ("self_attn.o_proj", shape.heads * shape.head_dim, shape.out_bias),
            ("mlp.down_proj", shape.ffn, shape.mlp_bias),
        )
    )
    before_mlp = norm("pre_feedforward" if shape.sandwich else "post_attention")
    return Layer(
        attention_in=_normed(norm("input"), qkv) if width is None else qkv,
        qk_norm=_qk_norm(take_norm, shape, dims) if shape.qk_norm else None,
        out=_added(out, norm("post_attention") if shape.sandwich else None),
        mlp_in=_normed(before_mlp, gate_up),
        down=_gated(down, norm("post_feedforward") if shape.sandwich else None, shape.activation),
    )


def _normed(norm: RmsNorm, product: Operator) -> Operator:
    """Return x -> product(norm(x))."""
    if isinstance(product, BlockProduct):
        norm = RmsNorm(norm.weight.float().contiguous(), norm.eps)
        return partial(product.of_normed, norm=norm)
    return lambda x: product(norm(x))


def _added(product: Operator, norm: RmsNorm | None) -> Addition:
    """Return x, residual -> residual + norm(product(x))."""
    if norm is not None:
        return lambda x, residual: residual + norm(product(x))
    if isinstance(product, BlockProduct):
        return product
    return lambda x, residual: residual + product(x)


def _gated(product: Operator, norm: RmsNorm | None, activation: str) -> Addition:
    """Return (gates, values), residual -> residual + norm(product(activation(gates) * values))."""
    if isinstance(product, BlockProduct) and norm is None and activation == "silu":
        return product.of_gated
    activate, add = ACTIVATIONS[activation], _added(product, norm)

    def down(gate_up: Tensor, residual: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        return add(activate(gate).mul_(up), residual)

    return down


def norm_taker(take: Take, shape: LlamaShape) -> Take:
    """Return a `take` of norm weights, with the family's offset added."""

    def take_norm(name: str, size: int) -> Tensor:
        weight = take(name, size)
        # an offset added in bfloat16 would round most of the weight away
        return weight.float() + shape.norm_offset if shape.norm_offset else weight

    return take_norm


def _qkv(take: Take, shape: LlamaShape, dims: int, kind: str, *columns: int) -> Tensor:
    keys = shape.kv_heads * shape.head_dim
    sizes = [shape.heads * shape.head_dim, keys, keys]
    if shape.fused:
        whole = take(f"self_attn.qkv_proj.{kind}", sum(sizes), *columns)
        query, key, value = torch.split_with_sizes(whole, sizes)
    else:
        query, key, value = (
            take(f"self_attn.{name}_proj.{kind}", size, *columns)
            for name, size in zip("qkv", sizes, strict=True)
        )
    query = _interleave(query, shape.heads, dims)
    return torch.cat((query, _interleave(key, shape.kv_heads, dims), value))


def _gate_up(take: Take, shape: LlamaShape, kind: str, *columns: int) -> Tensor:
    if shape.fused:
        return take(f"mlp.gate_up_proj.{kind}", 2 * shape.ffn, *columns)
    both = (take(f"mlp.{name}_proj.{kind}", shape.ffn, *columns) for name in ("gate", "up"))
    return torch.cat([*both])


def _qk_norm(take: Take, shape: LlamaShape, dims: int) -> Tensor:
    weights = (take(f"self_attn.{name}_norm.weight", shape.head_dim) for name in "qk")
    query, key = (_interleave(weight, 1, dims) for weight in weights)
    repeated = (query.expand(shape.heads, -1), key.expand(shape.kv_heads, -1))
    return torch.cat(repeated).float().contiguous()


def _interleave(weight: Tensor, heads: int, dims: int) -> Tensor:
    """Reorder a projection's rows so that rotary pairs (i, i + dims / 2) are neighbours.

    Queries and keys are reordered in the same way, so their products stay the same, and the
    rotation becomes one complex multiplication in place.
    """
    head_dim = weight.shape[0] // heads
    by_head = weight.view(heads, head_dim, -1)
    turning = by_head[:, :dims].reshape(heads, 2, dims // 2, -1).transpose(1, 2)
    return torch.cat((turning.flatten(1, 2), by_head[:, dims:]), dim=1).reshape(weight.shape)
