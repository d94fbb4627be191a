"""Attention of a few tokens over a KV pool in float32, on x86 CPUs (attention.c).

A token's result is the same to the bit whether it is computed alone or in a tree, in a batch or by
itself, since it is summed over the slots that the token sees in their order.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.torch_engine.models.kernels.block_product import is_built
from workers.torch_engine.models.kv_pool import LayerCache

if is_built():
    from workers.torch_engine.models.kernels import _kernels

LANES, WIDEST = 8, 256
"""A head's size is a multiple of LANES, and at most WIDEST."""
TREE_SLOTS = 64
"""Slots behind the committed ones that a tree may take: a bit of a place each."""


def computes(head_dim: int) -> bool:
    """Return whether the kernel attends with heads of this size here."""
    return is_built() and head_dim % LANES == 0 and head_dim <= WIDEST


def chain_places(row: int, start: int, count: int) -> NDArray[np.uint64]:
    """Return the places uint64 [count, 4] of tokens from slot `start` on that see all before them.

    A place is a token's row, its slot, the number of slots from the first on that it sees, and the
    bits of those that it sees of the 64 behind these.
    """
    slots = np.arange(start, start + count, dtype=np.uint64)
    found = np.full(count, row, np.uint64), slots, slots + np.uint64(1), np.zeros_like(slots)
    return np.stack(found, 1)


def tree_places(row: int, committed: int, parents: Sequence[int], read: int) -> NDArray[np.uint64]:
    """Return the places of a tree's nodes behind `committed` slots, without the first `read`.

    parents: the index of each node's parent, -1 for the last committed token.
    """
    seen = list[int]()
    for index, parent in enumerate(parents):
        seen.append(1 << index | (seen[parent] if parent >= 0 else 0))
    found = [(row, committed + index, committed, seen[index]) for index in range(len(parents))]
    return np.asarray(found[read:], dtype=np.uint64)


def attend(fused: Tensor, turns: Tensor, places: Tensor, cache: LayerCache, scale: float) -> Tensor:
    """Write keys and values of N tokens into the pool; return what they hear: [N, heads * head_dim]
    float32.

    fused: [N, heads + 2 * kv_heads, head_dim] float32, queries and keys before their rotation by
    turns [N, 1, head_dim / 2] complex64. places: int64 [N, 4].
    """
    count, all_heads, dim = fused.shape
    kv_heads, stride = cache.keys.shape[1], cache.keys.stride(1) // dim
    heads = all_heads - 2 * kv_heads
    fused, turns = fused.contiguous(), turns.contiguous()
    heard = torch.empty(count, heads * dim)
    _kernels.attend(
        (fused.data_ptr(), turns.data_ptr(), places.data_ptr(), count),
        cache.slots.data_ptr(),
        (heads, kv_heads, stride, dim),
        scale,
        heard.data_ptr(),
        torch.get_num_threads(),
    )
    return heard
