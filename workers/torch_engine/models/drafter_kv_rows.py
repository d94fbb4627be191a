"""Keep a drafter's rows together with the target's."""

from workers.torch_engine.models.kv_pool import KvPool, Lease


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
