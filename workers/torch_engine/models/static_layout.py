"""A layout in the shapes of its bucket: one vector holds all that differs between steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.torch_engine.models.kv_pool import TREE_ROOM, KvPool
from workers.torch_engine.models.layout import Layout, Span, folded

WIDTHS = (1, 2, 3, 5, 9, 17, 33, 65)
"""Tokens of one sequence: a root and the nodes of a tree, often a power of two."""
LEAST_CONTEXT = 128
"""Attention over fewer slots is hardly faster."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The static shape of a forward over the pool's first `sequences` rows.

    width: places of each sequence. context: slots that a place can see. rows: tokens. wanted:
    tokens whose logits are computed, None for all. even: place i holds token i, so that attention
    gathers nothing.
    """

    sequences: int
    width: int
    context: int
    rows: int
    wanted: int | None
    even: bool

    @property
    def places(self) -> int:
        """Return the places of all sequences."""
        return self.sequences * self.width


def bucket_of(spans: Sequence[Span], pool: KvPool) -> Bucket | None:
    """Return the smallest bucket for spans, whose rows ascend, or None if they fit into none.

    Spans that are too wide or have too many branches fit into none. Raises ValueError for a span
    that does not fit into its row.
    """
    counts = [len(span.tokens) for span in spans]
    end = max(span.start + count for span, count in zip(spans, counts, strict=True))
    if end > pool.capacity:
        raise ValueError(f"{end} tokens do not fit into a row of {pool.capacity} slots")
    branched = any(len(s.parents) - trunk(s) > TREE_ROOM for s in spans if s.parents is not None)
    if branched or max(counts) > WIDTHS[-1]:
        return None
    width = next(size for size in WIDTHS if size >= max(counts))
    sequences = min(padded(spans[-1].lease.row + 1), pool.rows + 1)
    even = spans[-1].lease.row == len(spans) - 1 and min(counts) == width
    rows = sequences * width if even else min(padded(sum(counts)), sequences * width)
    wanted = None
    if any(span.logits_from for span in spans):
        asked = sum(counts) - sum(span.logits_from for span in spans)
        wanted = min(padded(asked), rows)
    context = min(padded(max(end, LEAST_CONTEXT)), pool.capacity)
    return Bucket(sequences, width, context, rows, wanted, even)


def padded(count: int) -> int:
    """Return the least of 1, 2, 3, 4, 6, 8, 12, 16, ... that is not below `count`."""
    size = 1 << (count - 1).bit_length()
    between = 3 * size // 4
    return between if between >= count and size > 2 else size


def trunk(span: Span) -> int:
    """Return the length of the chain at a tree's beginning on which all other nodes depend.

    Tokens that earlier forwards read count too.
    """
    assert span.parents is not None
    length = len(span.parents)
    for index, parent in enumerate(span.parents):
        if parent != index - 1:
            length = min(length, parent + 1)
    return length


@dataclass(frozen=True, slots=True)
class StaticLayout:
    """The layout of one forward in the shape of `bucket`.

    given: int64 [n] on the host; `unfold` turns it into a layout. token_count, logit_count: rows of
    the bucket and rows of logits before the padding. logit_starts: index of each span's first
    logits.
    """

    bucket: Bucket
    given: Tensor
    token_count: int
    logit_count: int
    logit_starts: list[int]


def static_layout(spans: Sequence[Span], pool: KvPool) -> StaticLayout | None:
    """Lay out spans, one per sequence and in ascending row order; None if they fit no bucket.

    A padded token is written to the pool's scratch slot, and a padded place sees only its row's
    first slot: the results are finite and unused. Raises ValueError for a span that does not fit
    into its row.
    """
    bucket = bucket_of(spans, pool)
    if bucket is None:
        return None
    columns = {name: np.zeros(size, dtype=np.int64) for name, size in _sizes(bucket).items()}
    columns["slots"][:] = pool.scratch
    columns["base"][:] = 1
    counts = [len(span.tokens) for span in spans]
    starts = [0, *accumulate(counts)]
    for span, start in zip(spans, starts, strict=False):
        _place(span, start, bucket, pool, columns)
    wanted = [
        np.arange(start + span.logits_from, start + count)
        for span, start, count in zip(spans, starts, counts, strict=False)
    ]
    logit_count = sum(map(len, wanted))
    if bucket.wanted is not None:
        columns["wanted"][:logit_count] = np.concatenate(wanted)
    return StaticLayout(
        bucket,
        torch.from_numpy(np.concatenate(list(columns.values()))),
        token_count=starts[-1],
        logit_count=logit_count,
        logit_starts=[0, *accumulate(map(len, wanted[:-1]))],
    )


def unfold(given: Tensor, bucket: Bucket, pool: KvPool, groups: int, dtype: torch.dtype) -> Layout:
    """Compute the layout that a vector describes, on the device.

    groups: query heads per KV head, for which the mask [S, 1, width * groups, context] repeats.
    dtype: the mask's dtype.
    """
    sizes = _sizes(bucket)
    column = dict(zip(sizes, given.split_with_sizes(list(sizes.values())), strict=True))
    heads = torch.arange(2 * pool.kv_heads, device=given.device) * pool.stride
    at = torch.arange(bucket.context, device=given.device)
    beyond = at - column["base"][:, None]
    related = (column["kin"][:, None] >> beyond.clamp(0, TREE_ROOM - 1)) & 1 == 1
    visible = (at <= column["own"][:, None]) & ((beyond < 0) | related)
    return Layout(
        tokens=column["tokens"],
        positions=column["positions"],
        slots=(column["slots"][:, None] + heads).flatten(),
        first=0,
        sequences=bucket.sequences,
        width=bucket.width,
        context=bucket.context,
        causal=False,
        mask=folded(visible.view(bucket.sequences, bucket.width, -1), groups, dtype),
        pad=column.get("pad"),
        unpad=column.get("unpad"),
        logit_rows=column.get("wanted"),
        logit_starts=[],
    )


def _sizes(bucket: Bucket) -> dict[str, int]:
    """Return the sizes of the vector's columns.

    Per token: its id, its position, its slot in a layer of the pool (of the first KV head) and, if
    places are not even, its place (`unpad`). Per place: its slot in its row (`own`), the first slot
    that later tokens may not see (`base`), bits of the TREE_ROOM slots from there that it sees
    (`kin`), and its token (`pad`). Last come the tokens whose logits are wanted.
    """
    sizes = dict.fromkeys(("tokens", "positions", "slots"), bucket.rows)
    sizes |= dict.fromkeys(("own", "base", "kin"), bucket.places)
    if not bucket.even:
        sizes |= {"unpad": bucket.rows, "pad": bucket.places}
    if bucket.wanted is not None:
        sizes["wanted"] = bucket.wanted
    return sizes


def _place(
    span: Span, start: int, bucket: Bucket, pool: KvPool, columns: dict[str, NDArray[np.int64]]
) -> None:
    """Write one sequence's tokens, the first of which is token `start` of the forward."""
    count, row = len(span.tokens), span.lease.row
    tokens = slice(start, start + count)
    places = slice(row * bucket.width, row * bucket.width + count)
    slots = np.arange(span.start, span.start + count)
    columns["tokens"][tokens] = span.tokens
    columns["slots"][tokens] = slots + row * 2 * pool.kv_heads * pool.stride
    columns["own"][places] = slots
    if span.parents is None:
        columns["positions"][tokens] = slots
        columns["base"][places] = span.start + count
    else:
        length = trunk(span)
        depths, kin = _branches(span.parents, length)
        columns["positions"][tokens] = span.lease.length + np.asarray(depths[span.read :])
        columns["base"][places] = span.lease.length + length
        columns["kin"][places] = np.asarray(kin[span.read :], dtype=np.uint64).view(np.int64)
    if not bucket.even:
        columns["unpad"][tokens] = np.arange(places.start, places.stop)
        columns["pad"][places] = np.arange(start, start + count)


def _branches(parents: Sequence[int], length: int) -> tuple[list[int], list[int]]:
    """Return each token's depth, and bits of itself and its ancestors behind the trunk.

    length: tokens of the trunk.
    """
    depths, kin = list[int](), list[int]()
    for index, parent in enumerate(parents):
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
        own = 1 << index - length if index >= length else 0
        kin.append(own | kin[parent] if parent >= 0 else own)
    return depths, kin
