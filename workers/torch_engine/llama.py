"""The forward of Llama and its relatives: fused weights, our own KV pool, several sequences."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from workers.bundle import BundleError
from workers.torch_engine.families import read_shape
from workers.torch_engine.kv_pool import KvPool, LayerCache
from workers.torch_engine.layer import Layer, build_layer
from workers.torch_engine.layout import Layout, Span, build_layout
from workers.torch_engine.operators import projection, rms_norm
from workers.torch_engine.shape import LlamaShape
from workers.torch_engine.visibility import capped_attention, narrowed, spelled_out, windowed

FINAL = -1
"""Capture index of the last hidden state after the final norm (what the LM head reads)."""

TREE_ROOM = 64
"""Slots of every row beyond the context, so that a tree fits in even at a request's last tokens."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


class Llama:
    """Weights of a Llama-like model and its forward over a KvPool.

    Weights and the residual stream are in `dtype`; attention and the KV pool in `kv_dtype`.
    Which features the model has is settled here, so that the forward of one without them runs no
    operation for them.
    """

    def __init__(
        self,
        shape: LlamaShape,
        weights: dict[str, Tensor],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device
        self.vocab, self.max_positions = shape.vocab, shape.max_positions
        # a float32 cache is several times faster on the CPU, whose bfloat16 attention is not fused
        self.kv_dtype = torch.float32 if device.type == "cpu" else dtype
        self.groups = shape.heads // shape.kv_heads
        self._activate = ACTIVATIONS[shape.activation]

        def take(name: str) -> Tensor:
            if name not in weights:
                raise BundleError(f"the weights have no tensor {name!r}")
            return weights[name].to(device=device, dtype=dtype)

        def take_norm(name: str) -> Tensor:
            weight = take(name)
            # an offset added in bfloat16 would round most of the weight away
            return weight.float() + shape.norm_offset if shape.norm_offset else weight

        self.embedding = take("model.embed_tokens.weight")
        # the scale is rounded as transformers rounds it
        self._scale = torch.tensor(shape.embedding_scale, dtype=dtype).item()
        tied = "lm_head.weight" not in weights
        self.lm_head = self.embedding if tied else take("lm_head.weight")
        self._read_out = projection(self.lm_head)
        self._norm = rms_norm(take_norm("model.norm.weight"), shape.eps)
        attentions = shape.each_attention
        self._rotaries = list(dict.fromkeys(a.rotary for a in attentions))
        self._windows = list(dict.fromkeys(a.window for a in attentions))
        self._layer_windows = [a.window for a in attentions] if any(self._windows) else None
        self.layers = [
            build_layer(
                take,
                take_norm,
                shape,
                index,
                rotary=self._rotaries.index(attention.rotary),
                view=self._windows.index(attention.window),
            )
            for index, attention in enumerate(attentions)
        ]
        self._tables: list[Tensor] = []

    @staticmethod
    def load(folder: Path, dtype: torch.dtype, device: torch.device) -> "Llama":
        """Load a part in Hugging Face layout (safetensors, one file or several).

        Raises NotCoveredError for a config this forward does not compute, BundleError for a part
        without config.json or weights.
        """
        shape = read_shape(folder)
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise BundleError(f"no *.safetensors in {folder}")
        weights: dict[str, Tensor] = {}
        for file in files:
            weights.update(load_file(file))
        return Llama(shape, weights, dtype, device)

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
        if self._scale != 1.0:
            x = x * self._scale
        rotaries = [table[layout.positions] for table in self._rotations(pool.capacity)]
        views = self._views(layout)
        caches = pool.view(layout.first, layout.sequences, layout.context)
        if self._layer_windows and layout.mask is None and not layout.causal:
            caches = list(map(narrowed, caches, self._layer_windows))
        for index, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            if index in captures:
                hidden[index] = x
            normed = layer.input_norm(x)
            heard = self._attend(normed, layer, cache, views[layer.view], rotaries[layer.rotary])
            if layer.attention_norm is not None:
                heard = layer.attention_norm(heard)
            x = x + heard
            gate, up = layer.gate_up(layer.mlp_norm(x)).chunk(2, -1)
            fed = layer.down(self._activate(gate).mul_(up))
            if layer.feedforward_norm is not None:
                fed = layer.feedforward_norm(fed)
            x = x + fed
        if FINAL in captures:
            hidden[FINAL] = x = self._norm(x)
        if layout.logit_rows is not None:
            x = x[layout.logit_rows]
        if FINAL not in captures:
            x = self._norm(x)
        logits = self._read_out(x).float()
        if shape.logit_cap is not None:
            logits = torch.tanh(logits / shape.logit_cap) * shape.logit_cap
        return logits, hidden

    def _attend(
        self, x: Tensor, layer: Layer, cache: LayerCache, layout: Layout, rotary: Tensor
    ) -> Tensor:
        """Attention of N tokens: write their keys and values into the pool, then read it."""
        shape = self.shape
        heads, kv_heads, dim = shape.heads, shape.kv_heads, shape.head_dim
        turning = heads + kv_heads
        fused = layer.qkv(x).float().view(-1, turning + kv_heads, dim)
        if layer.qk_norm is not None:
            normed = F.rms_norm(fused[:, :turning], (dim,), eps=shape.eps)
            fused[:, :turning] = normed * layer.qk_norm
        pairs = torch.view_as_complex(fused.view(-1, turning + kv_heads, dim // 2, 2))
        pairs[:, :turning].mul_(rotary)
        query, stored = fused.to(self.kv_dtype).split_with_sizes((heads, 2 * kv_heads), 1)
        cache.slots.index_copy_(0, layout.slots, stored.reshape(-1, dim))
        if layout.causal:
            seen = F.scaled_dot_product_attention(
                query.transpose(0, 1)[None],
                cache.keys,
                cache.values,
                is_causal=True,
                scale=shape.score_scale,
                enable_gqa=self.groups > 1,
            )
            flat = seen[0].transpose(0, 1).reshape(-1, heads * dim)
            return layer.out(flat.to(self.dtype))
        if layout.pad is not None:
            query = query[layout.pad]
        # a KV head's query heads join its query tokens: [S, kv_heads, width * groups, dim]
        sequences, width = layout.sequences, layout.width
        in_order = width == 1 or kv_heads == 1
        if not in_order:
            query = query.reshape(sequences, width, kv_heads, -1).transpose(1, 2)
        query = query.reshape(sequences, kv_heads, width * self.groups, dim)
        if shape.score_cap is None:
            seen = F.scaled_dot_product_attention(
                query, cache.keys, cache.values, attn_mask=layout.mask, scale=shape.score_scale
            )
        else:
            scale = shape.score_scale or dim**-0.5
            seen = capped_attention(
                query, cache.keys, cache.values, mask=layout.mask, scale=scale, cap=shape.score_cap
            )
        if not in_order:
            seen = seen.reshape(sequences, kv_heads, width, -1).transpose(1, 2)
        flat = seen.reshape(-1, heads * dim)
        if layout.unpad is not None:
            flat = flat[layout.unpad]
        return layer.out(flat.to(self.dtype))

    def _views(self, layout: Layout) -> list[Layout]:
        """The layout as each kind of layer sees it."""
        if self.shape.score_cap is not None:
            layout = spelled_out(layout, self.groups, self.kv_dtype)
        return [
            layout if window is None else windowed(layout, window, self.groups, self.kv_dtype)
            for window in self._windows
        ]

    def _rotations(self, positions: int) -> list[Tensor]:
        """The rotary tables [positions, 1, head_dim / 2] of this model's layers."""
        if not self._tables or len(self._tables[0]) < positions:
            dim, device = self.shape.head_dim, self.device
            self._tables = [rotary.table(positions, dim, device) for rotary in self._rotaries]
        return self._tables
