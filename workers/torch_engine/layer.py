"""One decoder block's weights, fused and reordered for our forward."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.torch_engine.shape import LlamaShape

Take = Callable[[str], Tensor]
"""A tensor of the checkpoint by name, on the right device and in the right dtype."""


@dataclass(slots=True)
class Layer:
    """qkv [(heads + 2 kv_heads) * head_dim, hidden] and gate_up [2 * ffn, hidden] are fused.

    Where a model lacks a feature its tensor is None. qk_norm: [heads + kv_heads, head_dim] float32.
    rotary, view: which of the model's rotary tables and layouts the layer uses.
    """

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    qk_norm: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    attention_norm: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None
    feedforward_norm: Tensor | None
    rotary: int
    view: int


def build_layer(
    take: Take, take_norm: Take, shape: LlamaShape, index: int, *, rotary: int, view: int
) -> Layer:
    """Read block `index`; `take_norm` yields norm weights with the family's offset added."""
    prefix = f"model.layers.{index}."
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    dims = shape.each_attention[index].rotary.dims
    after = prefix + "post_attention_layernorm.weight"
    before_mlp = prefix + "pre_feedforward_layernorm.weight" if shape.sandwich else after
    last = prefix + "post_feedforward_layernorm.weight"
    return Layer(
        input_norm=take_norm(prefix + "input_layernorm.weight"),
        qkv=_qkv(take, attention, "weight", shape, dims),
        qkv_bias=_qkv(take, attention, "bias", shape, dims) if shape.qkv_bias else None,
        qk_norm=_qk_norm(take_norm, attention, shape, dims) if shape.qk_norm else None,
        out=take(attention + "o_proj.weight").contiguous(),
        out_bias=take(attention + "o_proj.bias") if shape.out_bias else None,
        attention_norm=take_norm(after) if shape.sandwich else None,
        mlp_norm=take_norm(before_mlp),
        gate_up=_gate_up(take, mlp, "weight", shape),
        gate_up_bias=_gate_up(take, mlp, "bias", shape) if shape.mlp_bias else None,
        down=take(mlp + "down_proj.weight").contiguous(),
        down_bias=take(mlp + "down_proj.bias") if shape.mlp_bias else None,
        feedforward_norm=take_norm(last) if shape.sandwich else None,
        rotary=rotary,
        view=view,
    )


def _qkv(take: Take, prefix: str, kind: str, shape: LlamaShape, dims: int) -> Tensor:
    if shape.fused:
        keys = shape.kv_heads * shape.head_dim
        whole = take(f"{prefix}qkv_proj.{kind}")
        sizes = [len(whole) - 2 * keys, keys, keys]
        query, key, value = torch.split_with_sizes(whole, sizes)
    else:
        query, key, value = (take(f"{prefix}{name}_proj.{kind}") for name in "qkv")
    query = _interleave(query, shape.heads, dims)
    return torch.cat((query, _interleave(key, shape.kv_heads, dims), value)).contiguous()


def _gate_up(take: Take, prefix: str, kind: str, shape: LlamaShape) -> Tensor:
    if shape.fused:
        return take(f"{prefix}gate_up_proj.{kind}").contiguous()
    return torch.cat((take(f"{prefix}gate_proj.{kind}"), take(f"{prefix}up_proj.{kind}")))


def _qk_norm(take: Take, prefix: str, shape: LlamaShape, dims: int) -> Tensor:
    query, key = (_interleave(take(f"{prefix}{n}_norm.weight"), 1, dims) for n in "qk")
    repeated = (query.expand(shape.heads, -1), key.expand(shape.kv_heads, -1))
    return torch.cat(repeated).float().contiguous()


def _interleave(weight: Tensor, heads: int, dims: int) -> Tensor:
    """Reorder a projection's rows so that rotary pairs (i, i + dims / 2) lie side by side.

    Queries and keys are reordered alike, so their products stay the same, and the rotation
    becomes one complex multiplication in place.
    """
    head_dim = weight.shape[0] // heads
    by_head = weight.view(heads, head_dim, -1)
    turning = by_head[:, :dims].reshape(heads, 2, dims // 2, -1).transpose(1, 2)
    return torch.cat((turning.flatten(1, 2), by_head[:, dims:]), dim=1).reshape(weight.shape)
