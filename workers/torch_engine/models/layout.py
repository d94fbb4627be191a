"""Lay out the tokens of one forward: positions, KV slots and masks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.torch_engine.models.kernels.attention import TREE_SLOTS, chain_places, tree_places
from workers.torch_engine.models.kernels.block_product import MANY_ROWS
from workers.torch_engine.models.kv_pool import KvPool, Lease
from workers.torch_engine.models.transfer import on

Indices = Sequence[int] | NDArray[np.int64]


@dataclass(slots=True)
class Span:
    """What one sequence adds to a forward.

    tokens: ids, parents before children. read: uncommitted tokens of earlier forwards, which lie
    behind the lease's committed ones. parents: the index of the parent of each read token and then
    of each of these, -1 for the last committed token; None if all form one chain. logits_from:
    index of the first token whose logits are wanted.
    """

    lease: Lease
    tokens: Sequence[int]
    parents: Sequence[int] | None = None
    read: int = 0
    logits_from: int = 0

    @property
    def start(self) -> int:
        """Return the slot of the first token."""
        return self.lease.length + self.read


@dataclass(slots=True)
class Layout:
    """Index tensors of one forward over N tokens of the S pool rows first .. first+S-1.

    Attention runs on a padded [S, width] view of the tokens: `pad` [S * width] picks each place's
    token (None where that is the identity) and `unpad` [N] picks the places back.
    places: int64 [N, 4] for the kernel of attention (see kernels.attention), which needs no mask;
    None where it does not compute this forward, which then has a mask.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    first: int
    sequences: int
    width: int
    context: int
    mask: Tensor | None
    pad: Tensor | None
    unpad: Tensor | None
    logit_rows: Tensor | None
    logit_starts: list[int]
    places: Tensor | None = None


def build_layout(
    spans: Sequence[Span],
    pool: KvPool,
    groups: int,
    dtype: torch.dtype,
    *,
    by_kernel: bool = False,
) -> Layout:
    """Lay out spans (one per sequence, in ascending row order) for a forward over `pool`.

    groups: query heads per KV head, folded into the query axis, so the mask repeats for them.
    by_kernel: whether our kernel may attend. Raises ValueError when a span does not fit into its
    row.
    """
    rows = [span.lease.row for span in spans]
    counts = [len(span.tokens) for span in spans]
    starts = [span.start for span in spans]
    ends = [start + count for start, count in zip(starts, counts, strict=True)]
    if max(ends) > pool.capacity:
        raise ValueError(f"{max(ends)} tokens do not fit into a row of {pool.capacity} slots")
    device = pool.data.device
    first, sequences, width = _rows(spans)
    slots = _slots(starts, counts)
    chains = all(span.parents is None for span in spans)
    indices: dict[str, Indices | None] = {
        "tokens": [token for span in spans for token in span.tokens],
        "positions": slots if chains else np.concatenate([_positions(span) for span in spans]),
        "slots": _flat_slots(slots, rows, counts, pool),
        "logit_rows": _logit_rows(spans, counts),
    }
    mask, places = None, _places(spans) if by_kernel else None
    if places is None:
        indices["pad"], indices["unpad"] = _padding(rows, counts, first, sequences, width)
        mask = additive_mask(spans, groups, dtype, device)
    else:
        indices |= dict.fromkeys(("pad", "unpad"))
    return Layout(
        places=places,
        first=first,
        sequences=sequences,
        width=width,
        context=max(ends),
        mask=mask,
        logit_starts=_logit_starts(spans, counts),
        **_put(indices, device),
    )


def _places(spans: Sequence[Span]) -> Tensor | None:
    """Return each token's place for the kernel of attention, None where another way is faster or
    a tree is too large."""
    each = []
    for span in spans:
        row, count = span.lease.row, len(span.tokens)
        if count > MANY_ROWS or (span.parents is not None and len(span.parents) > TREE_SLOTS):
            return None
        if span.parents is None:
            each.append(chain_places(row, span.start, count))
        else:
            each.append(tree_places(row, span.lease.length, span.parents, span.read))
    return torch.from_numpy(np.concatenate(each).view(np.int64))


def _put(indices: dict[str, Indices | None], device: torch.device) -> dict[str, Any]:
    """Copy index lists to the device in one transfer."""
    given = {name: values for name, values in indices.items() if values is not None}
    together = np.concatenate(list(given.values()), dtype=np.int64, casting="unsafe")
    flat = on(torch.from_numpy(together), device)
    parts = torch.split_with_sizes(flat, [len(values) for values in given.values()])
    return dict.fromkeys(indices) | dict(zip(given, parts, strict=True))


def _slots(starts: list[int], counts: list[int]) -> NDArray[np.int64]:
    """Return each token's slot within its row."""
    if len(starts) == 1:
        return np.arange(starts[0], starts[0] + counts[0])
    shifts = np.asarray(starts) - np.cumsum([0, *counts[:-1]])
    slots: NDArray[np.int64] = np.arange(sum(counts)) + np.repeat(shifts, counts)
    return slots


def _flat_slots(
    slots: NDArray[np.int64], rows: list[int], counts: list[int], pool: KvPool
) -> NDArray[np.int64]:
    """Return the flat slots of each token's keys and values of every KV head."""
    heads = np.arange(2 * pool.kv_heads) * pool.stride
    row_of = rows[0] if len(rows) == 1 else np.repeat(rows, counts)
    bases = slots + row_of * (2 * pool.kv_heads * pool.stride)
    flat: NDArray[np.int64] = (bases[:, None] + heads).ravel()
    return flat


def _positions(span: Span) -> NDArray[np.int64]:
    """Return positions, which follow the depth in the tree, not the slot."""
    if span.parents is None:
        return np.arange(span.start, span.start + len(span.tokens))
    depths: list[int] = []
    for parent in span.parents:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    return np.asarray(depths[span.read :], dtype=np.int64) + span.lease.length


def _padding(
    rows: list[int], counts: list[int], first: int, sequences: int, width: int
) -> tuple[Indices | None, Indices | None]:
    total = sum(counts)
    if total == sequences * width:
        return None, None
    offsets = (np.asarray(rows) - first) * width
    unpad = np.concatenate([o + np.arange(c) for o, c in zip(offsets, counts, strict=True)])
    pad = np.zeros(sequences * width, dtype=np.int64)
    pad[unpad] = np.arange(total)
    return pad, unpad


def additive_mask(
    spans: Sequence[Span], groups: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return the additive mask [S, 1, width * groups, context]: 0 at slots that a token sees, -inf
    elsewhere.

    The host sends the last slot that each token sees, and whole trees; the device expands it: the
    mask of a chunk of a long prompt has millions of entries.
    """
    first, sequences, width = _rows(spans)
    reach = np.full((sequences, width), -1, dtype=np.int64)
    for span in spans:
        row, count = reach[span.lease.row - first], len(span.tokens)
        if span.parents is None:
            row[:] = span.start - 1
            row[:count] = span.start + np.arange(count)
        else:
            row[:] = span.lease.length - 1
    slots = torch.arange(max(span.start + len(span.tokens) for span in spans), device=device)
    visible = slots <= on(torch.from_numpy(reach), device)[:, :, None]
    for span in spans:
        if span.parents is not None:
            seen = on(_ancestors(span.parents)[span.read :], device)
            begin, end = span.lease.length, span.start + len(span.tokens)
            visible[span.lease.row - first, : len(seen), begin:end] = seen
    return folded(visible, groups, dtype)


def folded(visible: Tensor, groups: int, dtype: torch.dtype) -> Tensor:
    """Return the additive mask [S, 1, width * groups, context] of a mask [S, width, context]."""
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    mask = mask.masked_fill_(~visible, float("-inf"))
    width, context = visible.shape[-2:]
    spread = mask.view(-1, 1, width, 1, context).expand(-1, -1, -1, groups, -1)
    return spread.reshape(-1, 1, width * groups, context)


def windowed(layout: Layout, window: int, groups: int, dtype: torch.dtype) -> Layout:
    """Return the layout of a layer in which each token attends to its nearest `window` tokens.

    Distances count visible tokens: in a tree, a token's ancestors.
    """
    if layout.mask is None or layout.context <= window:
        return layout
    shape = (layout.sequences, layout.width, groups, layout.context)
    visible = layout.mask.view(shape)[:, :, 0] == 0
    after = visible.flip(-1).cumsum(-1, dtype=torch.int32).flip(-1)
    return replace(layout, mask=folded(visible & (after <= window), groups, dtype))


def _rows(spans: Sequence[Span]) -> tuple[int, int, int]:
    """Return the first row, the number of rows up to the last, and the most tokens of a row."""
    first, last = spans[0].lease.row, spans[-1].lease.row
    return first, last - first + 1, max(len(span.tokens) for span in spans)


def _ancestors(parents: Sequence[int]) -> Tensor:
    """Return which of a tree's tokens each one sees: itself and what its parent sees."""
    block = np.eye(len(parents), dtype=np.bool_)
    for index, parent in enumerate(parents):
        if parent >= 0:
            block[index] |= block[parent]
    return torch.from_numpy(block)


def _logit_rows(spans: Sequence[Span], counts: list[int]) -> list[int] | None:
    """Return the flat tokens whose logits are wanted, None for all of them."""
    if not any(span.logits_from for span in spans):
        return None
    offsets = [0, *accumulate(counts[:-1])]
    return [
        offset + index
        for span, count, offset in zip(spans, counts, offsets, strict=True)
        for index in range(span.logits_from, count)
    ]


def _logit_starts(spans: Sequence[Span], counts: list[int]) -> list[int]:
    """Return the index of each span's first logits."""
    wanted = [count - span.logits_from for span, count in zip(spans, counts, strict=True)]
    return [0, *accumulate(wanted[:-1])]
