"""Where the tokens of one forward go: positions, KV slots, and who attends to whom."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.torch_engine.kv_pool import KvPool, Lease


@dataclass(slots=True)
class Span:
    """What one sequence adds to a forward.

    tokens: ids, parents before children. read: uncommitted tokens that earlier forwards left
    behind the lease's committed ones. parents: for the read tokens and then these, the index of
    each one's parent in that order, -1 for the last committed token; None where all is one chain.
    logits_from: logits are wanted for the tokens from this index on.
    """

    lease: Lease
    tokens: Sequence[int]
    parents: Sequence[int] | None = None
    read: int = 0
    logits_from: int = 0

    @property
    def start(self) -> int:
        """The slot of the first token."""
        return self.lease.length + self.read


@dataclass(slots=True)
class Layout:
    """Index tensors of one forward over N tokens of the S pool rows first .. first+S-1.

    Attention runs on a padded [S, width] view of the tokens: `pad` [S * width] picks each place's
    token (None where that is the identity) and `unpad` [N] picks the places back.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    first: int
    sequences: int
    width: int
    context: int
    causal: bool
    mask: Tensor | None
    pad: Tensor | None
    unpad: Tensor | None
    logit_rows: Tensor | None
    logit_starts: list[int]


def build_layout(spans: Sequence[Span], pool: KvPool, groups: int, dtype: torch.dtype) -> Layout:
    """Lay out spans (one per sequence, in ascending row order) for a forward over `pool`.

    groups: query heads per KV head, folded into the query axis, so the mask repeats for them.
    Raises ValueError when a span does not fit into its row.
    """
    rows = [span.lease.row for span in spans]
    counts = [len(span.tokens) for span in spans]
    starts = [span.start for span in spans]
    ends = [start + count for start, count in zip(starts, counts, strict=True)]
    if max(ends) > pool.capacity:
        raise ValueError(f"{max(ends)} tokens do not fit into a row of {pool.capacity} slots")
    first, sequences, width = rows[0], rows[-1] - rows[0] + 1, max(counts)
    total = sum(counts)
    device = pool.data.device

    def put(values: NDArray[np.int64] | list[int]) -> Tensor:
        return torch.as_tensor(values, dtype=torch.int64).to(device, non_blocking=True)

    slots = np.concatenate([np.arange(a, b) for a, b in zip(starts, ends, strict=True)])
    heads = 2 * pool.kv_heads
    row_of = np.repeat(rows, counts)
    flat = (row_of * heads * pool.capacity + slots)[:, None] + np.arange(heads) * pool.capacity
    chains = all(span.parents is None for span in spans)
    positions = slots if chains else np.concatenate([_positions(span) for span in spans])
    pad, unpad = _padding(rows, counts, first, sequences, width, total)
    causal = len(spans) == 1 and width > 1 and starts[0] == 0 and spans[0].parents is None
    mask = None if causal or total == sequences == 1 else _mask(spans, first, sequences, width)
    wanted, logit_starts = _logit_rows(spans, counts)
    return Layout(
        tokens=put([token for span in spans for token in span.tokens]),
        positions=put(positions),
        slots=put(flat.ravel()),
        first=first,
        sequences=sequences,
        width=width,
        context=max(ends),
        causal=causal,
        mask=None if mask is None else _fold(mask, groups, dtype, device),
        pad=None if pad is None else put(pad),
        unpad=None if unpad is None else put(unpad),
        logit_rows=None if wanted is None else put(wanted),
        logit_starts=logit_starts,
    )


def _positions(span: Span) -> NDArray[np.int64]:
    """Positions follow depth in the tree, not the slot."""
    if span.parents is None:
        return np.arange(span.start, span.start + len(span.tokens))
    depths: list[int] = []
    for parent in span.parents:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    return np.asarray(depths[span.read :], dtype=np.int64) + span.lease.length


def _padding(
    rows: list[int], counts: list[int], first: int, sequences: int, width: int, total: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    if total == sequences * width:
        return None, None
    offsets = (np.asarray(rows) - first) * width
    unpad = np.concatenate([o + np.arange(c) for o, c in zip(offsets, counts, strict=True)])
    pad = np.zeros(sequences * width, dtype=np.int64)
    pad[unpad] = np.arange(total)
    return pad, unpad


def _mask(spans: Sequence[Span], first: int, sequences: int, width: int) -> NDArray[np.float32]:
    """Additive mask [S, width, context]: 0 where a token may look, -inf elsewhere."""
    context = max(span.start + len(span.tokens) for span in spans)
    mask = np.full((sequences, width, context), -np.inf, dtype=np.float32)
    for span in spans:
        count = len(span.tokens)
        row = mask[span.lease.row - first]
        if span.parents is None:
            row[:, : span.start] = 0.0
            row[:count, span.start : span.start + count] = _triangle(count)
        else:
            committed = span.lease.length
            row[:, :committed] = 0.0
            row[:count, committed : span.start + count] = _ancestors(span.parents)[span.read :]
    return mask


@lru_cache(maxsize=8)
def _triangle(count: int) -> NDArray[np.float32]:
    return np.triu(np.full((count, count), -np.inf, dtype=np.float32), 1)


def _ancestors(parents: Sequence[int]) -> NDArray[np.float32]:
    """Each token may look at itself and what its parent may look at."""
    block = np.full((len(parents), len(parents)), -np.inf, dtype=np.float32)
    for index, parent in enumerate(parents):
        if parent >= 0:
            block[index] = block[parent]
        block[index, index] = 0.0
    return block


def _fold(
    mask: NDArray[np.float32], groups: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    sequences, width, context = mask.shape
    folded = torch.from_numpy(mask).to(device=device, dtype=dtype)[:, None, :, None]
    return folded.expand(-1, -1, -1, groups, -1).reshape(sequences, 1, width * groups, context)


def _logit_rows(spans: Sequence[Span], counts: list[int]) -> tuple[list[int] | None, list[int]]:
    """Rows of the flat tokens whose logits are wanted (None: all), and where each span's begin."""
    wanted: list[int] = []
    starts: list[int] = []
    offset = 0
    for span, count in zip(spans, counts, strict=True):
        starts.append(len(wanted))
        wanted.extend(range(offset + span.logits_from, offset + count))
        offset += count
    return (None if len(wanted) == offset else wanted), starts
