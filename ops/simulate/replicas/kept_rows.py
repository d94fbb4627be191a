"""What a simulated replica keeps of ended answers, for the next turns of their conversations."""

from collections.abc import Sequence

from schemas.prefixes import HASH_BYTES, REPORTED, prefix_hashes


class KeptRows:
    """The rows of a KV pool that ended answers leave, each with one conversation's tokens.

    A row is kept until a request needs it, the least recently used first, as in
    `workers.torch_engine.models.prefix_cache`.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._kept: dict[str, tuple[int, bytes]] = {}
        """By scope, the number of tokens and the hashes of their prefixes; the oldest first."""

    def take(self, scope: str, running: int) -> int:
        """Give a conversation's row back to it; return the tokens that it holds.

        running: rows in use, that of this request included.
        """
        tokens, _ = self._kept.pop(scope, (0, b""))
        while self._kept and len(self._kept) + running > self._rows:
            del self._kept[next(iter(self._kept))]
        return tokens

    def keep(self, scope: str, tokens: Sequence[int]) -> None:
        """Keep the row of an answer that has ended."""
        self._kept[scope] = len(tokens), b"".join(prefix_hashes(tokens, scope))

    def hashes(self) -> bytes:
        """Return the hashes of all prefixes, as load reports have them."""
        found = b"".join(hashes for _, hashes in reversed(self._kept.values()))
        return found[: REPORTED * HASH_BYTES]
