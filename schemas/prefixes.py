"""Hashes that name the prefixes of prompts which a replica's cache holds."""

from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from itertools import islice, takewhile

BLOCK = 32
"""Tokens of the shortest prefix that has a hash, and the least between two."""

COARSENING = 4
"""A prefix's next longer one has at least 1 / COARSENING more tokens, rounded down to blocks. So a
prompt of 8,192 tokens has 24 hashes."""

REPORTED = 512
"""Most hashes in a load report."""

HASH_BYTES = 4
"""Bytes of a hash. A collision only sends a request to a replica that holds less than expected."""


def _lengths() -> Iterator[int]:
    """Yield the lengths of the prefixes that have hashes, ascending."""
    length = BLOCK
    while True:
        yield length
        length += max(BLOCK, length // COARSENING // BLOCK * BLOCK)


def prefix_lengths(tokens: int) -> list[int]:
    """Return the lengths of the prefixes of this many tokens that have hashes, ascending."""
    return list(takewhile(lambda length: length <= tokens, _lengths()))


def prefix_hashes(tokens: Sequence[int], scope: str) -> list[bytes]:
    """Return a hash of every prefix of `prefix_lengths`. The scope is part of each hash."""
    # An array is made of a list in half the time that it takes from a tuple.
    text = memoryview(array("I", list(tokens)).tobytes())
    state = blake2b(digest_size=HASH_BYTES, key=_key(scope))
    begin, hashes = 0, list[bytes]()
    for length in prefix_lengths(len(tokens)):
        state.update(text[begin : 4 * length])
        begin = 4 * length
        hashes.append(state.digest())
    return hashes


@lru_cache
def _key(scope: str) -> bytes:
    return sha256(scope.encode()).digest()


@lru_cache
def hashed_lengths(count: int) -> list[int]:
    """Return the lengths of the first `count` prefixes that have hashes."""
    return list(islice(_lengths(), count))
