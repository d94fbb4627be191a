"""A transformers model over our KV pool."""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from workers.torch_engine.models.fallback.transformers_model import (
    TransformersModel,
    padded,
    unpadded,
)
from workers.torch_engine.models.kv_pool import TREE_ROOM, KvPool, KvShape, LayerCache
from workers.torch_engine.models.layout import Layout, Span, build_layout
from workers.torch_engine.models.visibility import spelled_out


class CachedModel(TransformersModel):
    """Keys and values in our pool: batches and trees in one forward, by mask and positions."""

    manner = "with our KV pool"

    def __init__(
        self, causal: Any, dtype: torch.dtype, device: torch.device, cache: KvShape
    ) -> None:
        super().__init__(causal, dtype, device)
        self._cache = cache

    def make_pool(self, rows: int, capacity: int) -> KvPool:
        """See TransformersModel."""
        return KvPool(
            self._cache,
            rows=rows,
            capacity=capacity + TREE_ROOM,
            dtype=self.dtype,
            device=self.device,
        )

    def lay_out(self, spans: Sequence[Span], pool: KvPool) -> Layout:
        """See TransformersModel."""
        return build_layout(spans, pool, 1, self.dtype)

    def forward(
        self, layout: Layout, pool: KvPool, captures: Collection[int] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See TransformersModel."""
        caches = pool.view(layout.first, layout.sequences, layout.context)
        mask = spelled_out(layout, 1, self.dtype).mask
        if mask is None:
            mask = torch.zeros(1, 1, 1, layout.context, dtype=self.dtype, device=self.device)
        output = self.causal(
            input_ids=padded(layout.tokens, layout),
            position_ids=padded(layout.positions, layout),
            # Finite: padding sees nothing, and a softmax over -inf alone is NaN.
            attention_mask=mask.clamp(min=torch.finfo(self.dtype).min),
            past_key_values=Cache(layers=[_PoolLayer(cache, layout) for cache in caches]),
            use_cache=True,
            output_hidden_states=bool(captures),
        )
        logits = unpadded(output.logits, layout)
        if layout.logit_rows is not None:
            logits = logits[layout.logit_rows]
        return logits.float(), {i: unpadded(output.hidden_states[i], layout) for i in captures}


class _PoolLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer's part of our pool, as a cache of transformers."""

    def __init__(self, cache: LayerCache, layout: Layout) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_initialized = True
        self._cache, self._layout = cache, layout

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the pool exists already."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write keys and values [S, kv_heads, width, head_dim] and return those of all slots."""
        both = torch.cat((key_states, value_states), dim=1).transpose(1, 2)
        flat = unpadded(both, self._layout)
        self._cache.slots.index_copy_(0, self._layout.slots, flat.reshape(-1, flat.shape[-1]))
        return self._cache.keys, self._cache.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the length and the offset of the keys."""
        return self._layout.context, 0

    def get_seq_length(self) -> int:
        """Return the tokens before this forward in the longest row."""
        return self._layout.context - self._layout.width

    def get_max_length(self) -> int:
        """Return -1, no bound: rows are checked when a forward is laid out."""
        return -1
