"""The slot pool that holds every running sequence's keys and values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from workers.torch_engine.models.transfer import indices

TREE_ROOM = 64
"""Slots that every row has beyond the context: a tree fits even at a request's last tokens."""


@dataclass(slots=True, eq=False)
class Lease:
    """One sequence's row of slots; `length` of them hold committed tokens. The row may change.

    spoilt: whether the row may hold NaN or infinity. version: of the head that fills the row.
    """

    row: int
    length: int = 0
    spoilt: bool = False
    version: int = 0


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
    """Keys and values [layers, rows, 2 * kv_heads, stride, head_dim]; keys before values.

    Rows in use are always 0 .. n-1, so that a batch attends over one strided view and nothing is
    gathered: a released row is filled with the last one. Rows kept for what they hold lie at the
    other end, the last row first, so that free rows are those between. Slot i of a row holds
    position i. Behind the `capacity` slots of each is one more that no view reaches, so that a
    row's begin `stride` slots apart; `scratch` is the first one of them, where padding is written.
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
        self.stride, self.scratch = capacity + 1, capacity
        places = (rows, 2 * shape.kv_heads, self.stride, shape.head_dim)
        self.data = torch.zeros(shape.layers, *places, dtype=dtype, device=device)
        self.rows = rows
        self.capacity = capacity
        self.kv_heads = shape.kv_heads
        self._leases: list[Lease] = []
        self._kept: list[Lease] = []
        self._slots = [layer.view(-1, shape.head_dim) for layer in self.data]

    @property
    def free_rows(self) -> int:
        """Return the number of rows that are neither in use nor kept."""
        return self.rows - len(self._leases) - len(self._kept)

    def acquire(self) -> Lease:
        """Take the next free row. Raises RuntimeError if there is none."""
        if not self.free_rows:
            raise RuntimeError("the KV pool has no free row")
        lease = Lease(row=len(self._leases))
        self._leases.append(lease)
        return lease

    def view(self, first: int, sequences: int, context: int) -> list[LayerCache]:
        """Return each layer's views for a forward over rows first .. first+sequences-1."""
        stored = self.data[:, first : first + sequences, :, :context]
        keys = stored[:, :, : self.kv_heads].unbind()
        values = stored[:, :, self.kv_heads :].unbind()
        return list(map(LayerCache, keys, values, self._slots))

    def release(self, lease: Lease) -> None:
        """Free a row; the last row moves into its place."""
        if lease.spoilt:
            # Masked slots still meet a weight of 0, and 0 * NaN is NaN. Attention reads the next
            # sequence's row as far as the longest row of its batch.
            self.data[:, lease.row] = 0.0
        last = self._leases.pop()
        if last is not lease:
            self._leases[lease.row] = last
            self._move(last, lease.row)

    def clear(self, lease: Lease) -> None:
        """Zero a row's slots after its committed tokens, which may hold NaN."""
        self.data[:, lease.row, :, lease.length :] = 0.0

    def keep(self, lease: Lease) -> None:
        """Keep a row that is no longer in use, until `drop` or `take_back`."""
        saved = self.data[:, lease.row, :, : lease.length].clone()
        self.release(lease)
        self._kept.append(lease)
        lease.row = self.rows - len(self._kept)
        self.data[:, lease.row, :, : lease.length] = saved

    def drop(self, lease: Lease) -> None:
        """Free a kept row."""
        last = self._kept.pop()
        if last is not lease:
            self._kept[self.rows - 1 - lease.row] = last
            self._move(last, lease.row)

    def take_back(self, lease: Lease, length: int) -> None:
        """Use a kept row again, with the first `length` tokens that it holds."""
        lease.length = length
        saved = self.data[:, lease.row, :, :length].clone()
        self.drop(lease)
        lease.row = len(self._leases)
        self._leases.append(lease)
        self.data[:, lease.row, :, :length] = saved

    def copy(self, source: Lease, lease: Lease, length: int) -> None:
        """Fill a row with the first `length` tokens of another one."""
        self.data[:, lease.row, :, :length] = self.data[:, source.row, :, :length]
        lease.length = length

    def _move(self, lease: Lease, row: int) -> None:
        used = lease.length
        self.data[:, row, :, :used] = self.data[:, lease.row, :, :used]
        lease.row = row

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
