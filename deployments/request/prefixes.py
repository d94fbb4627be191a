"""Which prefixes of prompts the replicas hold: by their reports, and by what was sent since."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from router.acceptance import Floats
from schemas import LoadReport
from schemas.prefixes import HASH_BYTES, hashed_lengths

_HALF = 32
_PLACES = (1 << _HALF) - 1
"""Bits of a replica's index in a pair of a hash and an index; the hash is in the upper half."""


class Prefixes:
    """Find the replicas that hold a prompt's beginning, by the hashes of `schemas.prefixes`.

    The prompts that this ingress has sent to a replica count until they are forgotten. A replica
    that reports no prefixes may have no cache and holds nothing.
    """

    def __init__(self) -> None:
        self._sent: dict[tuple[str, str], Sequence[bytes]] = {}
        """Hashes of prompts, by replica and request."""
        self._readers: defaultdict[bytes, Counter[str]] = defaultdict(Counter)
        """By hash and replica: the number of requests with that hash."""
        self.reported(())

    def sent(self, replica: str, request_id: str, hashes: Sequence[bytes]) -> None:
        """Record that a replica reads a request's prompt."""
        self.forget(replica, request_id)
        self._sent[replica, request_id] = hashes
        for one in hashes:
            self._readers[one][replica] += 1

    def forget(self, replica: str, request_id: str) -> None:
        """Drop a request that another replica has taken, or that reports tell of."""
        for one in self._sent.pop((replica, request_id), ()):
            readers = self._readers[one]
            readers[replica] -= 1
            if not readers[replica]:
                del readers[replica]
            if not readers:
                del self._readers[one]

    def reported(self, reports: Sequence[LoadReport]) -> None:
        """Take the last report of each replica."""
        self._index = {report.replica: i for i, report in enumerate(reports)}
        self._cached = [report.prefixes is not None for report in reports]
        prefixes = [report.prefixes or b"" for report in reports]
        counts = [len(one) // HASH_BYTES for one in prefixes]
        # One sorted array of all replicas is searched as fast as that of one.
        self._pairs = (_numbers(prefixes) << _HALF) | np.repeat(np.arange(len(reports)), counts)
        self._pairs.sort()

    def held(self, hashes: Sequence[bytes]) -> Floats:
        """Return how many of a prompt's first tokens each reporting replica holds [n], at least.

        hashes: of the prompt, by `schemas.prefixes.prefix_hashes`.
        """
        held, lengths = np.zeros(len(self._index)), hashed_lengths(len(hashes))
        lowest = _numbers(hashes) << _HALF
        begins = np.searchsorted(self._pairs, lowest).tolist()
        ends = np.searchsorted(self._pairs, lowest | _PLACES, side="right").tolist()
        for length, begin, end in zip(lengths, begins, ends, strict=True):
            if begin == end:  # a replica that holds a longer prefix holds this one too
                break
            held[self._pairs[begin:end] & _PLACES] = length
        for replica, length in self._reading(hashes, lengths).items():
            i = self._index.get(replica)
            if i is not None and self._cached[i]:
                held[i] = max(held[i], length)
        return held

    def _reading(self, hashes: Sequence[bytes], lengths: Sequence[int]) -> dict[str, int]:
        """Return by replica the longest prefix, of those with `hashes`, that it was sent."""
        found = dict[str, int]()
        everyone = len(self._readers.get(hashes[0], ())) if hashes else 0
        for one, length in zip(reversed(hashes), reversed(lengths), strict=True):
            if len(found) == everyone:
                break
            for replica in self._readers.get(one, ()):
                found.setdefault(replica, length)
        return found


def _numbers(hashes: Sequence[bytes]) -> NDArray[np.int64]:
    return np.frombuffer(b"".join(hashes), np.int32).astype(np.int64)
