"""The slot pool that holds every running sequence's keys and values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(slots=True, eq=False)
class Lease:
    """One sequence's row of slots; `length` of them hold committed tokens."""

    row: int
    length: int = 0


class LayerCache(NamedTuple):
    """One layer's part of the pool, as views.

    keys, values: [sequences, kv_heads, context, head_dim] of the rows a forward attends over.
    slots: [rows * 2 * kv_heads * capacity, head_dim], everything, to write into.
    """

    keys: Tensor
    values: Tensor
    slots: Tensor


class KvPool:
    """Keys and values [layers, rows, 2 * kv_heads, capacity, head_dim]; keys before values.

    Rows in use are always 0 .. n-1, so that a batch attends over one strided view and nothing is
    gathered: a released row is filled with the last one. Slot i of a row holds position i.
    """

    def __init__(
        self,
        *,
        layers: int,
        kv_heads: int,
        head_dim: int,
        rows: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        # zeros, not empty: masked slots still meet a weight of 0, and 0 * NaN is NaN
        self.data = torch.zeros(
            layers, rows, 2 * kv_heads, capacity, head_dim, dtype=dtype, device=device
        )
        self.rows = rows
        self.capacity = capacity
        self.kv_heads = kv_heads
        self._leases: list[Lease] = []
        self._slots = [layer.view(-1, head_dim) for layer in self.data]

    @property
    def free_rows(self) -> int:
        """Rows nobody holds."""
        return self.rows - len(self._leases)

    def acquire(self) -> Lease:
        """The next free row; raises RuntimeError when there is none (callers ask first)."""
        if not self.free_rows:
            raise RuntimeError("the KV pool has no free row")
        lease = Lease(row=len(self._leases))
        self._leases.append(lease)
        return lease

    def view(self, first: int, sequences: int, context: int) -> list[LayerCache]:
        """Each layer's views for a forward over rows first .. first+sequences-1."""
        stored = self.data[:, first : first + sequences, :, :context]
        keys = stored[:, :, : self.kv_heads].unbind()
        values = stored[:, :, self.kv_heads :].unbind()
        return list(map(LayerCache, keys, values, self._slots))

    def release(self, lease: Lease) -> None:
        """Give a row back; the last row moves into its place."""
        last = self._leases.pop()
        if last is lease:
            return
        used = last.length
        self.data[:, lease.row, :, :used] = self.data[:, last.row, :, :used]
        last.row = lease.row
        self._leases[lease.row] = last

    def commit(self, lease: Lease, kept: Sequence[int]) -> None:
        """Keep some of the tokens written after `length`, in order, and drop the rest.

        `kept` are offsets from `length`, ascending; a tree's accepted path is moved together so
        that slots equal positions again.
        """
        if kept and kept[-1] != len(kept) - 1:
            source = torch.tensor(kept, device=self.data.device) + lease.length
            row = self.data[:, lease.row]
            row[:, :, lease.length : lease.length + len(kept)] = row[:, :, source]
        lease.length += len(kept)
