"""The slot pool that holds every running sequence's keys and values, and a drafter's rows of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from workers.torch_engine.models.transfer import indices

TREE_ROOM = 64
"""Slots that every row has beyond the context: a tree fits even at a request's last tokens."""

BLOCK = 256
"""Tokens of a row that are moved at a time: 12 MB of a small model's, in 3 ms."""


@dataclass(slots=True, eq=False)
class Lease:
    """One sequence's row of slots; `length` of them hold committed tokens. The row may change.

    degraded: whether the row may hold NaN or infinity. version: of the head that fills the row.
    """

    row: int
    length: int = 0
    degraded: bool = False
    version: int = 0


@dataclass(slots=True)
class _Move:
    """A row that is copied to another place, and how many of its tokens lie there."""

    lease: Lease
    row: int
    done: int = 0


class LayerCache(NamedTuple):
    """One layer's part of the pool, as views.

    keys, values: [sequences, kv_heads, context, head_dim] of the rows a forward attends over.
    slots: [rows * 2 * kv_heads * stride, head_dim], everything, to write into.
    """

    keys: Tensor
    values: Tensor
    slots: Tensor


class KvShape(NamedTuple):
    """Keys and values of one token: layers, KV heads and the size of each."""

    layers: int
    kv_heads: int
    head_dim: int


class KvPool:
    """Keys and values [layers, rows + 1, 2 * kv_heads, stride, head_dim]; keys before values.

    Slot i of a row holds position i. A row's heads begin `stride` slots apart.

    A row is used, kept and used again where it lies. A batch attends over a strided view from its
    first row to its last, so rows in use should lie together: `settle` moves them, for which there
    is one row more than are given out.
    """

    def __init__(
        self,
        shape: KvShape,
        *,
        rows: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        # zeros, not empty: masked slots still meet a weight of 0, and 0 * NaN is NaN
        self.stride = capacity + 1
        places = (rows + 1, 2 * shape.kv_heads, self.stride, shape.head_dim)
        self.data = torch.zeros(shape.layers, *places, dtype=dtype, device=device)
        self.rows = rows
        self.capacity = capacity
        self.kv_heads = shape.kv_heads
        self._held: list[Lease | None] = [None] * (rows + 1)
        self._used = set[Lease]()
        self._move: _Move | None = None
        self._slots = [layer.view(-1, shape.head_dim) for layer in self.data]

    @property
    def free_rows(self) -> int:
        """Return the number of rows that are neither in use nor kept."""
        return self._held.count(None) - 1

    def acquire(self) -> Lease:
        """Take the first free row. Raises RuntimeError if there is none."""
        if not self.free_rows:
            raise RuntimeError("the KV pool has no free row")
        lease = Lease(row=self._free(range(self.rows + 1)))
        self._held[lease.row] = lease
        self._used.add(lease)
        return lease

    def view(self, first: int, sequences: int, context: int) -> list[LayerCache]:
        """Return each layer's views for a forward over rows first .. first+sequences-1."""
        stored = self.data[:, first : first + sequences, :, :context]
        keys = stored[:, :, : self.kv_heads].unbind()
        values = stored[:, :, self.kv_heads :].unbind()
        return list(map(LayerCache, keys, values, self._slots))

    def release(self, lease: Lease) -> None:
        """Free a row in use."""
        if lease.degraded:
            # Masked slots still meet a weight of 0, and 0 * NaN is NaN. Attention reads the next
            # sequence's row as far as the longest row of its batch.
            self.data[:, lease.row] = 0.0
        self._used.remove(lease)
        self.drop(lease)

    def clear(self, lease: Lease) -> None:
        """Zero a row's slots after its committed tokens, which may hold NaN."""
        self.data[:, lease.row, :, lease.length :] = 0.0

    def keep(self, lease: Lease) -> None:
        """Keep a row that is no longer in use, until `drop` or `take_back`."""
        self._used.remove(lease)

    def drop(self, lease: Lease) -> None:
        """Free a kept row."""
        self._held[lease.row] = None
        self._stay(lease)

    def take_back(self, lease: Lease, length: int) -> None:
        """Use a kept row again, with the first `length` tokens that it holds."""
        self.cut(lease, length)
        self._used.add(lease)

    def cut(self, lease: Lease, length: int) -> None:
        """Forget all tokens of a row but the first `length`."""
        lease.length = length
        # what is copied of the others would be taken for the tokens that come in their place
        self._stay(lease)

    def copy(self, source: Lease, lease: Lease, length: int) -> None:
        """Fill a row with the first `length` tokens of another one."""
        self.data[:, lease.row, :, :length] = self.data[:, source.row, :, :length]
        lease.length = length

    def settle(self) -> None:
        """Move rows in use nearer to each other, at most BLOCK tokens at a time, while all wait.
        Drafts that are not committed yet move along. Takes no memory."""
        move = self._move = self._move or self._next_move()
        if move is None:
            return
        lease, row = move.lease, move.row
        end = min(lease.length, move.done + BLOCK)
        # a drafter that several methods share holds drafts of this step here already
        slots = slice(move.done, end + TREE_ROOM if end == lease.length else end)
        self.data[:, row, :, slots] = self.data[:, lease.row, :, slots]
        move.done = end
        if end == lease.length:
            self._held[lease.row], self._held[row] = None, lease
            lease.row, self._move = row, None

    def _next_move(self) -> _Move | None:
        """Return the move of a used row to a free one among the others, or of a kept row out of
        their way; None if no row needs to move."""
        used, places = {lease.row: lease for lease in self._used}, self.rows + 1
        windows = [range(first, first + len(used)) for first in range(places - len(used) + 1)]
        window = max(windows, key=lambda rows: sum(row in used for row in rows))
        holes = [row for row in window if row not in used]
        if not holes:
            return None
        for row in holes:
            if self._held[row] is None:
                return _Move(next(used[row] for row in used if row not in window), row)
        kept = self._held[holes[0]]
        assert kept is not None
        return _Move(kept, self._free(row for row in range(places) if row not in window))

    def _free(self, rows: Iterable[int]) -> int:
        """Return the first free row that nothing is moved to."""
        taken = None if self._move is None else self._move.row
        return next(row for row in rows if self._held[row] is None and row != taken)

    def _stay(self, lease: Lease) -> None:
        """Give up the move of a row."""
        if self._move is not None and self._move.lease is lease:
            self._move = None

    def commit(self, lease: Lease, kept: Sequence[int]) -> None:
        """Keep some of the tokens written after `length`, in order, and drop the rest.

        `kept` are offsets from `length`, ascending; a tree's accepted path is moved together so
        that slots equal positions again.
        """
        if kept and kept[-1] != len(kept) - 1:
            source = indices(kept, self.data.device) + lease.length
            row = self.data[:, lease.row]
            row[:, :, lease.length : lease.length + len(kept)] = row[:, :, source]
        lease.length += len(kept)


class DrafterKvRows:
    """Map each row of the target's pool, in use or kept, to the drafter's row of the same text.

    A row that the drafter has not read has none. The drafter's pool has as many rows as the
    target's, so that a row is always free. It may be set later, before the first row is taken.
    """

    pool: KvPool

    def __init__(self, pool: KvPool | None = None) -> None:
        if pool is not None:
            self.pool = pool
        self._used: dict[Lease, Lease] = {}
        self._kept: dict[Lease, Lease] = {}

    def __contains__(self, lease: Lease) -> bool:
        return lease in self._used

    def __getitem__(self, lease: Lease) -> Lease:
        """Return the drafter's row of a target row in use."""
        return self._used[lease]

    def length(self, lease: Lease) -> int:
        """Return the read slots of the drafter's row; 0 without one."""
        return self._used[lease].length if lease in self._used else 0

    def acquire(self, lease: Lease, version: int = 0) -> Lease:
        """Take an empty row for a target row that has none. version: of the head that fills it."""
        own = self._used[lease] = self.pool.acquire()
        own.version = version
        return own

    def begin(self, lease: Lease, source: Lease, length: int, version: int = 0) -> int:
        """Give a row in use up to `length` slots of the drafter's row of `source`, if the same
        version of the drafter's head has filled them.

        `source` may be the row itself if it was kept. Return the number of slots.
        """
        own = self._kept.get(source) or self._used.get(source)
        count = 0 if own is None or own.version != version else min(length, own.length)
        if own is None or count <= 0:
            return 0
        if source is lease:
            self.pool.take_back(self._kept.pop(lease), count)
            self._used[lease] = own
        else:
            self.pool.copy(own, self.acquire(lease, version), count)
        return count

    def keep(self, lease: Lease) -> None:
        """Keep the drafter's row of a target row that is kept."""
        if lease in self._used:
            own = self._kept[lease] = self._used.pop(lease)
            self.pool.keep(own)

    def drop(self, lease: Lease) -> None:
        """Free the drafter's row of a kept target row."""
        if lease in self._kept:
            self.pool.drop(self._kept.pop(lease))

    def release(self, lease: Lease) -> None:
        """Free the drafter's row of a target row in use."""
        if lease in self._used:
            own = self._used.pop(lease)
            own.degraded = lease.degraded
            self.pool.release(own)
