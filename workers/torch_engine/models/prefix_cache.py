"""A prefix that prompts share is computed once: rows remember the tokens they hold."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from workers.torch_engine.models.kv_pool import KvPool, Lease

MIN_SHARED = 16
"""Tokens from which a prefix is copied. Every prompt of a family begins with the same few: they
cost next to nothing to read, and should not make an arbitrary row look recently used."""


@dataclass(slots=True, eq=False)
class Holding:
    """A row and the tokens in it; only those below `lease.length` are there. They are of use to
    prompts of the same scope."""

    lease: Lease
    tokens: list[int]
    scope: str

    def shares(self, prompt: list[int], scope: str) -> int:
        """How many of the prompt's first tokens it holds for it, short of the last, which is to be
        read for its logits."""
        if scope != self.scope:
            return 0
        most = min(self.lease.length, len(prompt) - 1)
        low, high = 0, most
        # halving keeps the comparison in slices, which costs nothing beside a forward
        while low < high:
            middle = (low + high + 1) // 2
            if self.tokens[low:middle] == prompt[low:middle]:
                low = middle
            else:
                high = middle - 1
        return low


class PrefixCache:
    """Hands out a pool's rows, with as much of a prompt in them as some other row holds.

    Finished sequences' rows are kept while nobody needs them; the one that was not used for the
    longest goes first. So the cache takes no memory of its own and no request waits for it.
    """

    def __init__(self, pool: KvPool, forgotten: Callable[[Lease], None] = lambda _: None) -> None:
        """forgotten: told of every kept row that is kept no longer."""
        self._pool = pool
        self._forgotten = forgotten
        self._kept: list[Holding] = []
        """The least recently used first."""

    @property
    def kept_rows(self) -> int:
        """Finished sequences' rows that are remembered."""
        return len(self._kept)

    def take(
        self, prompt: list[int], running: Iterable[Holding], scope: str
    ) -> tuple[Lease, Lease | None]:
        """A row for a prompt; `length` says how many of its tokens are in it already, and the other
        lease whose they are: itself where a kept row is used again, None where there are none.

        running: rows in use that may be copied from. Raises RuntimeError where all rows are.
        """
        found, shared = self._best(prompt, running, scope)
        if found is None:
            return self.take_empty(), None
        if found in self._kept:
            self._kept.append(self._kept.pop(self._kept.index(found)))
            if not self._pool.free_rows and len(self._kept) == 1:
                self._kept.clear()
                self._pool.take_back(found.lease, shared)
                return found.lease, found.lease
        lease = self.take_empty()
        self._pool.copy(found.lease, lease, shared)
        return lease, found.lease

    def finds(self, prompt: list[int], running: Iterable[Holding], scope: str) -> int:
        """How many of a prompt's tokens `take` would find."""
        return self._best(prompt, running, scope)[1]

    def take_empty(self) -> Lease:
        """A row with nothing in it. Raises RuntimeError where all rows are in use."""
        if not self._pool.free_rows and self._kept:
            self._forget(self._kept[0])
        return self._pool.acquire()

    def give_back(self, lease: Lease, tokens: list[int], scope: str) -> bool:
        """Keep a finished sequence's row, instead of those that hold less of the same text; whether
        it is kept."""
        # the last step may have accepted more than the answer was allowed to hold
        lease.length = min(lease.length, len(tokens))
        ended = Holding(lease, tokens[: lease.length], scope)
        whole = [*ended.tokens, -1]
        for other in [h for h in self._kept if h.shares(whole, scope) == h.lease.length]:
            self._forget(other)
        longer = any(h.shares(whole, scope) == lease.length for h in self._kept)
        if lease.length < MIN_SHARED or longer:
            self._pool.release(lease)
            return False
        self._pool.keep(lease)
        self._kept.append(ended)
        return True

    def _best(
        self, prompt: list[int], running: Iterable[Holding], scope: str
    ) -> tuple[Holding | None, int]:
        """The row that holds most of a prompt, and how much of it; None where that is too little to
        be copied."""
        found = max((*self._kept, *running), key=lambda h: h.shares(prompt, scope), default=None)
        shared = 0 if found is None else found.shares(prompt, scope)
        return (found, shared) if shared >= MIN_SHARED else (None, 0)

    def _forget(self, holding: Holding) -> None:
        self._kept.remove(holding)
        self._pool.drop(holding.lease)
        self._forgotten(holding.lease)
