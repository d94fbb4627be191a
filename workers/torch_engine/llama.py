"""The Llama forward written out: fused weights, our own KV pool, several sequences at once."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from workers.bundle import BundleError
from workers.torch_engine.kv_pool import KvPool, LayerCache
from workers.torch_engine.layout import Layout, Span, build_layout

FINAL = -1
"""Capture index of the last hidden state after the final norm (what the LM head reads)."""

TREE_ROOM = 64
"""Slots of every row beyond the context, so that a tree fits in even at a request's last tokens."""


@dataclass(frozen=True)
class LlamaShape:
    """The numbers of a Llama's config.json that the forward needs."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    eps: float = 1e-5
    rope_theta: float = 10000.0

    @staticmethod
    def of(folder: Path) -> "LlamaShape":
        """Read a part's config.json; raises BundleError for what this forward does not compute."""
        from transformers import LlamaConfig

        if not (folder / "config.json").is_file():
            raise BundleError(f"no config.json in {folder}")
        config: Any = LlamaConfig.from_pretrained(folder, local_files_only=True)
        rope = config.rope_parameters
        supported = {
            "model_type": (config.model_type, "llama"),
            "hidden_act": (config.hidden_act, "silu"),
            "attention_bias": (config.attention_bias, False),
            "mlp_bias": (config.mlp_bias, False),
            "rope_type": (rope.get("rope_type", "default"), "default"),
        }
        for name, (value, needed) in supported.items():
            if value != needed:
                raise BundleError(f"{folder}/config.json: {name} is {value!r}, needs {needed!r}")
        return LlamaShape(
            hidden=config.hidden_size,
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            ffn=config.intermediate_size,
            vocab=config.vocab_size,
            eps=config.rms_norm_eps,
            rope_theta=rope["rope_theta"],
        )


@dataclass(slots=True)
class Layer:
    """One block's weights, fused: qkv [(heads + 2 kv_heads) * head_dim, hidden], gate_up
    [2 * ffn, hidden]."""

    input_norm: Tensor
    qkv: Tensor
    out: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Llama:
    """Weights of a LlamaForCausalLM and its forward over a KvPool.

    Weights and the residual stream are in `dtype`; attention and the KV pool in `kv_dtype`.
    """

    def __init__(
        self,
        shape: LlamaShape,
        weights: dict[str, Tensor],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device
        # a float32 cache is several times faster on the CPU, whose bfloat16 attention is not fused
        self.kv_dtype = torch.float32 if device.type == "cpu" else dtype
        self.groups = shape.heads // shape.kv_heads

        def take(name: str) -> Tensor:
            if name not in weights:
                raise BundleError(f"the weights have no tensor {name!r}")
            return weights[name].to(device=device, dtype=dtype)

        self.embedding = take("model.embed_tokens.weight")
        tied = "lm_head.weight" not in weights
        self.lm_head = self.embedding if tied else take("lm_head.weight")
        self.norm = take("model.norm.weight")
        self.layers = [self._layer(take, f"model.layers.{index}.") for index in range(shape.layers)]
        self._rotary = torch.empty(0, 1, shape.head_dim // 2, dtype=torch.complex64, device=device)

    def _layer(self, take: Any, prefix: str) -> Layer:
        attention, mlp, shape = prefix + "self_attn.", prefix + "mlp.", self.shape
        query = _interleave(take(attention + "q_proj.weight"), shape.heads)
        key = _interleave(take(attention + "k_proj.weight"), shape.kv_heads)
        return Layer(
            input_norm=take(prefix + "input_layernorm.weight"),
            qkv=torch.cat((query, key, take(attention + "v_proj.weight"))).contiguous(),
            out=take(attention + "o_proj.weight").contiguous(),
            post_norm=take(prefix + "post_attention_layernorm.weight"),
            gate_up=torch.cat((take(mlp + "gate_proj.weight"), take(mlp + "up_proj.weight"))),
            down=take(mlp + "down_proj.weight").contiguous(),
        )

    @staticmethod
    def load(folder: Path, dtype: torch.dtype, device: torch.device) -> "Llama":
        """Load a part in Hugging Face layout (safetensors, one file or several)."""
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise BundleError(f"no *.safetensors in {folder}")
        weights: dict[str, Tensor] = {}
        for file in files:
            weights.update(load_file(file))
        return Llama(LlamaShape.of(folder), weights, dtype, device)

    def make_pool(self, rows: int, capacity: int) -> KvPool:
        """A KV pool for this model: `rows` sequences of `capacity` tokens and their trees."""
        shape = self.shape
        return KvPool(
            layers=shape.layers,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            rows=rows,
            capacity=capacity + TREE_ROOM,
            dtype=self.kv_dtype,
            device=self.device,
        )

    def lay_out(self, spans: Sequence[Span], pool: KvPool) -> Layout:
        """Index tensors for a forward of these spans (ascending rows) over a pool of this model."""
        return build_layout(spans, pool, self.groups, self.kv_dtype)

    def forward(
        self, layout: Layout, pool: KvPool, captures: Collection[int] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Logits [wanted rows, vocab] float32, and captured hidden states [N, hidden] in `dtype`.

        captures: i in 0 .. layers-1 is the residual stream that enters layer i, FINAL the state
        after the final norm. Keys and values are written to the pool; nothing is committed.
        """
        shape = self.shape
        hidden: dict[int, Tensor] = {}
        x = F.embedding(layout.tokens, self.embedding)
        rotary = self._rotations(pool.capacity)[layout.positions]
        caches = pool.view(layout.first, layout.sequences, layout.context)
        for index, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            if index in captures:
                hidden[index] = x
            normed = F.rms_norm(x, (shape.hidden,), layer.input_norm, shape.eps)
            x = x + self._attend(normed, layer, cache, layout, rotary)
            normed = F.rms_norm(x, (shape.hidden,), layer.post_norm, shape.eps)
            wide = F.linear(normed, layer.gate_up)
            gated = F.silu(wide[:, : shape.ffn]).mul_(wide[:, shape.ffn :])
            x = x + F.linear(gated, layer.down)
        if FINAL in captures:
            hidden[FINAL] = x = F.rms_norm(x, (shape.hidden,), self.norm, shape.eps)
        if layout.logit_rows is not None:
            x = x[layout.logit_rows]
        if FINAL not in captures:
            x = F.rms_norm(x, (shape.hidden,), self.norm, shape.eps)
        return F.linear(x, self.lm_head).float(), hidden

    def _attend(
        self, x: Tensor, layer: Layer, cache: LayerCache, layout: Layout, rotary: Tensor
    ) -> Tensor:
        """Attention of N tokens: write their keys and values into the pool, then read it."""
        shape = self.shape
        heads, kv_heads, dim = shape.heads, shape.kv_heads, shape.head_dim
        qkv = F.linear(x, layer.qkv).float().view(-1, heads + 2 * kv_heads, dim)
        turning = qkv[:, : heads + kv_heads].view(-1, heads + kv_heads, dim // 2, 2)
        torch.view_as_complex(turning).mul_(rotary)
        qkv = qkv.to(self.kv_dtype)
        cache.slots.index_copy_(0, layout.slots, qkv[:, heads:].reshape(-1, dim))
        query = qkv[:, :heads]
        if layout.causal:
            seen = F.scaled_dot_product_attention(
                query.transpose(0, 1)[None],
                cache.keys,
                cache.values,
                is_causal=True,
                enable_gqa=self.groups > 1,
            )
            flat = seen[0].transpose(0, 1).reshape(-1, heads * dim)
            return F.linear(flat.to(self.dtype), layer.out)
        if layout.pad is not None:
            query = query[layout.pad]
        # a KV head's query heads join its query tokens: [S, kv_heads, width * groups, dim]
        sequences, width = layout.sequences, layout.width
        query = query.view(sequences, width, kv_heads, -1).transpose(1, 2)
        query = query.reshape(sequences, kv_heads, -1, dim)
        seen = F.scaled_dot_product_attention(
            query, cache.keys, cache.values, attn_mask=layout.mask
        )
        seen = seen.reshape(sequences, kv_heads, width, -1).transpose(1, 2)
        flat = seen.reshape(-1, heads * dim)
        if layout.unpad is not None:
            flat = flat[layout.unpad]
        return F.linear(flat.to(self.dtype), layer.out)

    def _rotations(self, positions: int) -> Tensor:
        """Unit complex numbers [positions, 1, head_dim / 2]: the rotary angle of each position."""
        if len(self._rotary) < positions:
            dim = self.shape.head_dim
            steps = torch.arange(0, dim, 2, dtype=torch.float32, device=self.device) / dim
            frequencies = 1.0 / self.shape.rope_theta**steps
            where = torch.arange(positions, dtype=torch.float32, device=self.device)
            angles = torch.outer(where, frequencies)
            self._rotary = torch.polar(torch.ones_like(angles), angles).unsqueeze(1)
        return self._rotary


def _interleave(weight: Tensor, heads: int) -> Tensor:
    """Reorder a projection's rows so that rotary pairs (i, i + head_dim / 2) lie side by side.

    Queries and keys are reordered alike, so their products stay the same, and the rotation
    becomes one complex multiplication in place.
    """
    dim = weight.shape[0] // heads
    return weight.view(heads, 2, dim // 2, -1).transpose(1, 2).reshape(weight.shape)
