"""Masks for layers with sliding windows or with attention that needs a mask."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from workers.torch_engine.models.kv_pool import LayerCache
from workers.torch_engine.models.layout import Layout, folded


def windowed(layout: Layout, window: int, groups: int, dtype: torch.dtype) -> Layout:
    """Return the layout of a layer in which each token attends to its nearest `window` tokens.

    Distances count visible tokens: in a tree, a token's ancestors.
    """
    if layout.context <= window or (layout.mask is None and not layout.causal):
        return layout
    if layout.causal:
        ones = torch.ones(layout.width, layout.width, dtype=torch.bool, device=layout.tokens.device)
        return replace(
            layout, causal=False, mask=folded(ones.tril().triu(1 - window), groups, dtype)
        )
    assert layout.mask is not None
    shape = (layout.sequences, layout.width, groups, layout.context)
    visible = layout.mask.view(shape)[:, :, 0] == 0
    after = visible.flip(-1).cumsum(-1, dtype=torch.int32).flip(-1)
    return replace(layout, mask=folded(visible & (after <= window), groups, dtype))


def spelled_out(layout: Layout, groups: int, dtype: torch.dtype) -> Layout:
    """Return the layout with a mask in place of `causal`."""
    if not layout.causal:
        return layout
    ones = torch.ones(layout.width, layout.width, dtype=torch.bool, device=layout.tokens.device)
    return replace(layout, causal=False, mask=folded(ones.tril(), groups, dtype))


def narrowed(cache: LayerCache, window: int | None) -> LayerCache:
    """Return the last `window` slots, all that a token at a row's end sees, without a mask."""
    if window is None:
        return cache
    return cache._replace(keys=cache.keys[:, :, -window:], values=cache.values[:, :, -window:])


def capped_attention(
    query: Tensor, keys: Tensor, values: Tensor, *, mask: Tensor | None, scale: float, cap: float
) -> Tensor:
    """Attend with scores squashed into (-cap, cap) before the mask (Gemma 2, arXiv:2408.00118).

    query: [S, kv_heads, Q, head_dim]; keys, values: [S, kv_heads, context, head_dim].
    """
    scores = torch.tanh(query @ keys.transpose(-1, -2) * (scale / cap)) * cap
    if mask is not None:
        scores = scores + mask
    return F.softmax(scores, dim=-1) @ values
