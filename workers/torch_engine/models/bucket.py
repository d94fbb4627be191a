"""Sizes that forwards are padded to, so that a few shapes serve for all."""

from collections.abc import Sequence
from dataclasses import dataclass

from workers.torch_engine.models.kv_pool import TREE_ROOM, KvPool
from workers.torch_engine.models.layout import Span

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
