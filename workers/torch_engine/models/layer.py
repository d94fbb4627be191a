"""One decoder block's weights, fused and reordered for our forward."""

from dataclasses import dataclass

import torch
from torch import Tensor

from workers.torch_engine.models.operators import Operator, Projection, projection, rms_norm
from workers.torch_engine.models.shape import LlamaShape
from workers.torch_engine.models.weights import Take


@dataclass(slots=True)
class Layer:
    """qkv gives [N, (heads + 2 kv_heads) * head_dim] and gate_up [N, 2 * ffn]: fused projections.

    The operator of a feature that a model lacks is None. qk_norm: [heads + kv_heads, head_dim]
    float32. rotary, view: indices of the layer's table and layout among the model's.
    """

    input_norm: Operator
    qkv: Operator
    qk_norm: Tensor | None
    out: Operator
    attention_norm: Operator | None
    mlp_norm: Operator
    gate_up: Operator
    down: Operator
    feedforward_norm: Operator | None
    rotary: int = 0
    view: int = 0


def build_layer(
    take: Take,
    shape: LlamaShape,
    index: int,
    *,
    prefix: str,
    input_norm: bool = True,
    project: Projection = projection,
) -> Layer:
    """Read block `index`, whose tensors' names begin with `prefix`.

    input_norm: whether the block norms what its attention reads. project: makes operators of
    matrices.
    """
    take_norm = norm_taker(take, shape)

    def norm(name: str) -> Operator:
        return rms_norm(take_norm(name), shape.eps)

    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    dims = shape.each_attention[index].rotary.dims
    after = prefix + "post_attention_layernorm.weight"
    before_mlp = prefix + "pre_feedforward_layernorm.weight" if shape.sandwich else after
    last = prefix + "post_feedforward_layernorm.weight"
    return Layer(
        input_norm=norm(prefix + "input_layernorm.weight") if input_norm else _as_it_is,
        qkv=project(
            _qkv(take, attention, "weight", shape, dims),
            _qkv(take, attention, "bias", shape, dims) if shape.qkv_bias else None,
        ),
        qk_norm=_qk_norm(take_norm, attention, shape, dims) if shape.qk_norm else None,
        out=project(
            take(attention + "o_proj.weight"),
            take(attention + "o_proj.bias") if shape.out_bias else None,
        ),
        attention_norm=norm(after) if shape.sandwich else None,
        mlp_norm=norm(before_mlp),
        gate_up=project(
            _gate_up(take, mlp, "weight", shape),
            _gate_up(take, mlp, "bias", shape) if shape.mlp_bias else None,
        ),
        down=project(
            take(mlp + "down_proj.weight"),
            take(mlp + "down_proj.bias") if shape.mlp_bias else None,
        ),
        feedforward_norm=norm(last) if shape.sandwich else None,
    )


def norm_taker(take: Take, shape: LlamaShape) -> Take:
    """Return a `take` of norm weights, with the family's offset added."""

    def take_norm(name: str) -> Tensor:
        weight = take(name)
        # an offset added in bfloat16 would round most of the weight away
        return weight.float() + shape.norm_offset if shape.norm_offset else weight

    return take_norm


def _as_it_is(x: Tensor) -> Tensor:
    return x


def _qkv(take: Take, prefix: str, kind: str, shape: LlamaShape, dims: int) -> Tensor:
    if shape.fused:
        keys = shape.kv_heads * shape.head_dim
        whole = take(f"{prefix}qkv_proj.{kind}")
        sizes = [len(whole) - 2 * keys, keys, keys]
        query, key, value = torch.split_with_sizes(whole, sizes)
    else:
        query, key, value = (take(f"{prefix}{name}_proj.{kind}") for name in "qkv")
    query = _interleave(query, shape.heads, dims)
    return torch.cat((query, _interleave(key, shape.kv_heads, dims), value))


def _gate_up(take: Take, prefix: str, kind: str, shape: LlamaShape) -> Tensor:
    if shape.fused:
        return take(f"{prefix}gate_up_proj.{kind}")
    return torch.cat((take(f"{prefix}gate_proj.{kind}"), take(f"{prefix}up_proj.{kind}")))


def _qk_norm(take: Take, prefix: str, shape: LlamaShape, dims: int) -> Tensor:
    query, key = (_interleave(take(f"{prefix}{n}_norm.weight"), 1, dims) for n in "qk")
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
