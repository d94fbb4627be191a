"""Hashes that name the prefixes of prompts which a replica's cache holds."""

from array import array
from collections.abc import Container, Sequence
from functools import lru_cache
from hashlib import blake2b, sha256

BLOCK = 32
"""Tokens of the shortest prefix that has a hash, and the least between two."""

COARSENING = 4
"""A prefix's next longer one has at least 1 / COARSENING more tokens, rounded down to blocks. So a
prompt of 8,192 tokens has 24 hashes."""

REPORTED = 512
"""Most hashes in a load report."""

_BYTES = 4
"""Bytes of a hash. A collision only sends a request to a replica that holds less than expected."""


def prefix_lengths(tokens: int) -> list[int]:
    """Return the lengths of the prefixes of this many tokens that have hashes, ascending."""
    lengths, length = list[int](), BLOCK
    while length <= tokens:
        lengths.append(length)
        length = _next(length)
    return lengths


def _next(length: int) -> int:
    return length + max(BLOCK, length // COARSENING // BLOCK * BLOCK)


def prefix_hashes(tokens: Sequence[int], scope: str) -> list[bytes]:
    """Return a hash of every prefix of `prefix_lengths`. The scope is part of each hash."""
    text = memoryview(array("I", tokens).tobytes())
    state, begin, hashes = blake2b(digest_size=_BYTES, key=_key(scope)), 0, list[bytes]()
    for length in prefix_lengths(len(tokens)):
        end = 4 * length
        state.update(text[begin:end])
        hashes.append(state.digest())
        begin = end
    return hashes


@lru_cache
def _key(scope: str) -> bytes:
    return sha256(scope.encode()).digest()


@lru_cache(maxsize=1024)
def reported_hashes(prefixes: bytes) -> frozenset[bytes]:
    """Return the hashes of a load report's `prefixes`."""
    starts = range(0, len(prefixes), _BYTES)
    return frozenset(prefixes[start : start + _BYTES] for start in starts)


def held_tokens(
    hashes: Sequence[bytes], one: Container[bytes], other: Container[bytes] = ()
) -> int:
    """Return the length of the longest prefix, of those with `hashes`, that either container has.

    hashes: as `prefix_hashes` returns them. A container that has a prefix has its shorter ones too,
    so bisection finds the longest.
    """
    if not hashes or (hashes[0] not in one and hashes[0] not in other):
        return 0
    low, high = 1, len(hashes)
    while low < high:
        middle = (low + high) // 2
        if hashes[middle] in one or hashes[middle] in other:
            low = middle + 1
        else:
            high = middle
    return _lengths(len(hashes))[low]


@lru_cache
def _lengths(count: int) -> list[int]:
    """Return the lengths [count + 1] of the prefixes with the first `count` hashes, 0 first."""
    lengths = [0]
    for _ in range(count):
        lengths.append(_next(lengths[-1]))
    return lengths
