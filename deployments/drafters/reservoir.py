"""Which samples stay where there is room for a bounded number of tokens."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b

from schemas import Sample

Kind = tuple[str, str, int]
"""A target's hash, a routing table's fit id, and a cluster of it."""


class Reservoir:
    """Keep samples of at most `most_tokens` tokens, prompts and answers together.

    A sample takes at least LEAST_ROOM of them, which bounds the number of samples too. If there is
    no room, other targets than `target` give up samples first, which teach nothing, and then the
    cluster that takes the most. A flood of one kind thus replaces its
    own samples, and a cluster that needs no more than an even share keeps all of its own. Within a
    cluster the samples with the lowest hashes go first, which leaves a uniform sample (bottom-k
    sketches, Cohen and Kaplan, 10.1145/1281100.1281133).
    """

    def __init__(self, most_tokens: int, target: str = "") -> None:
        self._most_tokens, self._target = most_tokens, target
        self._samples: dict[str, Sample] = {}
        self._ranked: dict[Kind, list[tuple[bytes, str]]] = {}
        self._room: Counter[Kind] = Counter()

    @property
    def tokens(self) -> int:
        """Return the tokens of all samples."""
        return sum(sample.tokens for sample in self)

    def add(self, sample: Sample) -> None:
        """Add a sample unless it is there or larger than the reservoir.

        If there is no room, drop others or the sample itself.
        """
        if sample.id in self._samples or sample.room > self._most_tokens:
            return
        kind = sample.target, sample.fit_id, sample.cluster
        self._samples[sample.id] = sample
        self._room[kind] += sample.room
        heapq.heappush(self._ranked.setdefault(kind, []), (_rank(sample.id), sample.id))
        while self._room.total() > self._most_tokens:
            self._shrink(max(self._room, key=self._gives))

    def discard(self, unwanted: Callable[[Sample], bool]) -> None:
        """Remove the samples for which `unwanted` is true."""
        kept = [sample for sample in self if not unwanted(sample)]
        self._samples, self._ranked, self._room = {}, {}, Counter()
        for sample in kept:
            self.add(sample)

    def _gives(self, kind: Kind) -> tuple[bool, int, Kind]:
        """Return what decides which kind gives up a sample: the largest one does."""
        room = self._room[kind]
        return kind[0] != self._target and room > 0, room, kind

    def _shrink(self, kind: Kind) -> None:
        _, lowest = heapq.heappop(self._ranked[kind])
        self._room[kind] -= self._samples.pop(lowest).room

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._samples.values())

    def __len__(self) -> int:
        return len(self._samples)

    def __contains__(self, sample_id: str) -> bool:
        return sample_id in self._samples


def _rank(sample_id: str) -> bytes:
    return blake2b(sample_id.encode(), digest_size=8).digest()
