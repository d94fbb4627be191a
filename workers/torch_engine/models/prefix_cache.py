"""Compute a prefix that prompts share once: rows remember the tokens that they hold."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from schemas.prefixes import REPORTED, prefix_hashes
from workers.torch_engine.models.kv_pool import KvPool, Lease

MIN_SHARED = 16
"""The shortest prefix that is used. Every prompt of a model family begins with the same few
tokens: they are cheap to read, and must not make an arbitrary row look recently used."""


@dataclass(slots=True, eq=False)
class Holding:
    """A row and its tokens, for one scope. The first `lease.length` tokens are computed.

    prompt: how many of them were a prompt; the others answered it. hashes: of the prefixes of a
    kept row, by `schemas.prefixes`.
    """

    lease: Lease
    tokens: list[int]
    scope: str
    prompt: int = 0
    hashes: Sequence[bytes] = ()

    def shares(self, prompt: list[int], scope: str) -> int:
        """Return how many of the prompt's first tokens the row holds.

        The last token never counts, since it is read for its logits.
        """
        if scope != self.scope:
            return 0
        most = min(self.lease.length, len(prompt) - 1)
        low, high = 0, most
        # Bisection compares slices, which is cheap compared with a forward.
        while low < high:
            middle = (low + high + 1) // 2
            if self.tokens[low:middle] == prompt[low:middle]:
                low = middle
            else:
                high = middle - 1
        return low


class PrefixCache:
    """Hand out a pool's rows, filled with the longest prefix of the prompt that another row holds.

    Rows of finished sequences are kept until they are needed, and the least recently used goes
    first. A conversation's next turn gets the kept row of the last one, and nothing is copied.
    The cache takes no memory of its own and no request waits for it.
    """

    def __init__(self, pool: KvPool, forgotten: Callable[[Lease], None] = lambda _: None) -> None:
        """Manage the rows of a pool. `forgotten` is called for every kept row that is dropped."""
        self._pool = pool
        self._forgotten = forgotten
        self._kept: list[Holding] = []
        """Kept rows, least recently used first."""

    def hashes(self) -> bytes:
        """Return the hashes of prefixes in kept rows, at most REPORTED, the last used rows first.

        Safe in any thread.
        """
        every = chain.from_iterable(holding.hashes for holding in reversed(self._kept.copy()))
        return b"".join(islice(dict.fromkeys(every), REPORTED))

    def take(
        self, prompt: list[int], running: Iterable[Holding], scope: str
    ) -> tuple[Lease, Lease | None]:
        """Take a row for a prompt. Its `length` is the number of prompt tokens that it holds.

        Also return the lease that the tokens come from: the row itself if it was kept, None
        without such tokens. A kept row is handed over if the prompt goes on from its prompt; a
        prompt that only begins like it gets a copy. running: rows in use that may be copied from.
        Raises RuntimeError if all rows are in use.
        """
        found, shared = self._best(prompt, running, scope)
        if found is None:
            return self.take_empty(), None
        if found in self._kept:
            self._kept.append(self._kept.pop(self._kept.index(found)))
            goes_on = shared >= min(found.prompt - 1, found.lease.length)
            if goes_on or (not self._pool.free_rows and len(self._kept) == 1):
                self._kept.pop()
                self._pool.take_back(found.lease, shared)
                return found.lease, found.lease
        lease = self.take_empty()
        try:
            self._pool.copy(found.lease, lease, shared)
        except Exception:
            self._pool.release(lease)
            raise
        return lease, found.lease

    def finds(self, prompt: list[int], running: Iterable[Holding], scope: str) -> int:
        """Return how many of a prompt's tokens `take` would find."""
        return self._best(prompt, running, scope)[1]

    def take_empty(self) -> Lease:
        """Take an empty row. Raises RuntimeError if all rows are in use."""
        if not self._pool.free_rows and self._kept:
            self._forget(self._kept[0])
        return self._pool.acquire()

    def give_back(self, lease: Lease, tokens: list[int], scope: str, prompt: int) -> bool:
        """Keep a finished sequence's row instead of rows that hold less of the same text.

        prompt: how many of the tokens were the prompt. Return whether the row is kept.
        """
        # The last step may have accepted more tokens than the response may have.
        lease.length = min(lease.length, len(tokens))
        ended = Holding(lease, tokens[: lease.length], scope, prompt)
        ended.hashes = prefix_hashes(ended.tokens, scope)
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
        """Return the row that holds most of a prompt and the number of shared tokens.

        The row is None if fewer than MIN_SHARED tokens are shared.
        """
        found = max((*self._kept, *running), key=lambda h: h.shares(prompt, scope), default=None)
        shared = 0 if found is None else found.shares(prompt, scope)
        return (found, shared) if shared >= MIN_SHARED else (None, 0)

    def _forget(self, holding: Holding) -> None:
        self._kept.remove(holding)
        self._pool.drop(holding.lease)
        self._forgotten(holding.lease)
