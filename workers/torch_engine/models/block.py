"""Compute a decoder block: attention over the KV pool, then the MLP."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from workers.torch_engine.models.kernels.attention import attend, computes
from workers.torch_engine.models.kv_pool import TREE_ROOM, KvPool, KvShape, LayerCache
from workers.torch_engine.models.layer import Layer
from workers.torch_engine.models.layout import Layout, Span, build_layout
from workers.torch_engine.models.shape import LlamaShape


class Block:
    """The computation that the blocks of one model share; the weights come with each call.

    The residual stream is in `dtype`, attention and the KV pool are in `kv_dtype`.
    """

    def __init__(self, shape: LlamaShape, dtype: torch.dtype, device: torch.device) -> None:
        self._shape, self._dtype, self._device = shape, dtype, device
        # a float32 cache is several times faster on the CPU, whose bfloat16 attention is not fused
        self.kv_dtype = torch.float32 if device.type == "cpu" else dtype
        self.groups = shape.heads // shape.kv_heads
        windows = any(attention.window for attention in shape.each_attention)
        plain = not windows and shape.score_cap is None
        self._by_kernel = device.type == "cpu" and plain and computes(shape.head_dim)
        self._scale = shape.score_scale or shape.head_dim**-0.5

    def make_pool(self, layers: int, rows: int, capacity: int) -> KvPool:
        """Make a KV pool of `rows` sequences of `capacity` tokens and their trees."""
        return KvPool(
            KvShape(layers, self._shape.kv_heads, self._shape.head_dim),
            rows=rows,
            capacity=capacity + TREE_ROOM,
            dtype=self.kv_dtype,
            device=self._device,
        )

    def lay_out(self, spans: Sequence[Span], pool: KvPool) -> Layout:
        """Return index tensors for a forward of spans, whose rows ascend, over a pool."""
        return build_layout(spans, pool, self.groups, self.kv_dtype, by_kernel=self._by_kernel)

    def attend(
        self,
        x: Tensor,
        residual: Tensor,
        layer: Layer,
        cache: LayerCache,
        layout: Layout,
        rotary: Tensor,
    ) -> Tensor:
        """Write keys and values of N tokens [N, features] into the pool and attend over it.

        Returns the residual stream [N, hidden] with what was heard.
        """
        shape = self._shape
        heads, kv_heads, dim = shape.heads, shape.kv_heads, shape.head_dim
        turning = heads + kv_heads
        fused = layer.attention_in(x).float().view(-1, turning + kv_heads, dim)
        if layer.qk_norm is not None:
            scaled = F.rms_norm(fused[:, :turning], (dim,), eps=shape.eps)
            fused[:, :turning] = scaled * layer.qk_norm
        if layout.places is not None:
            heard = attend(fused, rotary, layout.places, cache, self._scale)
            return layer.out(heard.to(self._dtype), residual)
        pairs = torch.view_as_complex(fused.view(-1, turning + kv_heads, dim // 2, 2))
        pairs[:, :turning].mul_(rotary)
        query, stored = fused.to(self.kv_dtype).split_with_sizes((heads, 2 * kv_heads), 1)
        cache.slots.index_copy_(0, layout.slots, stored.reshape(-1, dim))
        return layer.out(self._look(query, cache, layout).to(self._dtype), residual)

    def feed_forward(self, x: Tensor, layer: Layer) -> Tensor:
        """Return the residual stream [N, hidden] after the MLP."""
        return layer.down(layer.mlp_in(x), x)

    def _look(self, query: Tensor, cache: LayerCache, layout: Layout) -> Tensor:
        """Attend with queries [N, heads, head_dim] under the layout's mask: [N, heads * dim]."""
        shape, keys, values, mask = self._shape, cache.keys, cache.values, layout.mask
        sequences, width, kv_heads = layout.sequences, layout.width, shape.kv_heads
        query = query if layout.pad is None else query[layout.pad]
        # a KV head's query heads join its query tokens: [S, kv_heads, width * groups, dim]
        in_order = width == 1 or kv_heads == 1
        if not in_order:
            query = query.reshape(sequences, width, kv_heads, -1).transpose(1, 2)
        query = query.reshape(sequences, kv_heads, width * self.groups, shape.head_dim)
        scale, cap = self._scale, shape.score_cap
        if cap is None:
            seen = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)
        else:  # scores are squashed into (-cap, cap) before the mask (Gemma 2, arXiv 2408.00118)
            assert mask is not None
            scores = torch.tanh(query @ keys.transpose(-1, -2) * (scale / cap)) * cap
            seen = F.softmax(scores + mask, dim=-1) @ values
        if not in_order:
            seen = seen.reshape(sequences, kv_heads, width, -1).transpose(1, 2)
        flat = seen.reshape(-1, shape.heads * shape.head_dim)
        return flat if layout.unpad is None else flat[layout.unpad]
