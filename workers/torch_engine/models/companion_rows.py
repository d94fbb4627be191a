"""Rows of a drafter's own pool that go with the target's."""

from workers.torch_engine.models.kv_pool import KvPool, Lease


class CompanionRows:
    """To each row of the target's pool, in use or kept, as much as the drafter has read of its
    text, if anything. The drafter's pool has as many rows as the target's, so that there is always
    one."""

    def __init__(self, pool: KvPool) -> None:
        self.pool = pool
        self._used: dict[Lease, Lease] = {}
        self._kept: dict[Lease, Lease] = {}

    def __contains__(self, lease: Lease) -> bool:
        return lease in self._used

    def __getitem__(self, lease: Lease) -> Lease:
        """The row that goes with one in use."""
        return self._used[lease]

    def length(self, lease: Lease) -> int:
        """Slots that are read of the row that goes with one in use, if any does."""
        return self._used[lease].length if lease in self._used else 0

    def acquire(self, lease: Lease) -> Lease:
        """An empty one for a row that has none."""
        self._used[lease] = self.pool.acquire()
        return self._used[lease]

    def begin(self, lease: Lease, source: Lease, length: int) -> int:
        """Up to `length` slots of what goes with `source`, for a row in use that has none; and how
        many they are. `source` may be the row itself, which was kept."""
        own = self._kept.get(source) or self._used.get(source)
        count = 0 if own is None else min(length, own.length)
        if own is None or count <= 0:
            return 0
        if source is lease:
            self.pool.take_back(self._kept.pop(lease), count)
            self._used[lease] = own
        else:
            self.pool.copy(own, self.acquire(lease), count)
        return count

    def keep(self, lease: Lease) -> None:
        """The row is not in use any more, but kept."""
        if lease in self._used:
            own = self._kept[lease] = self._used.pop(lease)
            self.pool.keep(own)

    def drop(self, lease: Lease) -> None:
        """A kept row is free again."""
        if lease in self._kept:
            self.pool.drop(self._kept.pop(lease))

    def release(self, lease: Lease) -> None:
        """A row in use is free again."""
        if lease in self._used:
            own = self._used.pop(lease)
            own.spoilt = lease.spoilt
            self.pool.release(own)
