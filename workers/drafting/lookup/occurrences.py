"""Where the last tokens of a text occurred before."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

EXAMINED = 32
"""Occurrences of an n-gram that are compared: half of them the earliest, half the latest."""
LONGEST = 64
"""Most tokens of a match."""
WIDTH, PLACE_WIDTH = array("i").itemsize, array("q").itemsize
"""Bytes of a token in an n-gram's key, and of a place where an n-gram has several."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A place in a text whose `matched` tokens before `start` are the last of a pattern."""

    text: Sequence[int]
    start: int
    matched: int


@dataclass
class Places:
    """Places of n-grams, in the order they were added. The dictionary holds no containers, so that
    the garbage collector skips it."""

    places: dict[bytes, int | bytearray] = field(default_factory=dict)

    def add(self, gram: bytes, place: int) -> None:
        """Add a place of an n-gram."""
        known = self.places.setdefault(gram, place)
        if known is not place:
            self._again(gram, known, place)

    def add_ends(self, text: Sequence[int], n: int, ends: Sequence[int], first: int) -> None:
        """Add the n-grams that end at `ends` in a text that begins at token `first`."""
        key, setdefault, width = key_of(text), self.places.setdefault, n * WIDTH
        for end in ends:
            stop = (end - first) * WIDTH
            gram = key[stop - width : stop]
            known = setdefault(gram, end)
            if known is not end:
                self._again(gram, known, end)

    def _again(self, gram: bytes, known: int | bytearray, place: int) -> None:
        if isinstance(known, int):
            self.places[gram] = packed((known, place))
        else:
            known += place.to_bytes(PLACE_WIDTH, sys.byteorder)

    def find(self, gram: bytes) -> list[int]:
        """Return the places of an n-gram, the oldest first."""
        return _spelled_out(self.places.get(gram))

    def last_of(self, pattern: Sequence[int], sizes: Iterable[int]) -> list[int]:
        """Return places of a pattern's last n tokens, for the first n of `sizes` with any."""
        grams = (key_of(pattern[-n:]) for n in sizes if n <= len(pattern))
        return next(filter(None, map(self.some, grams)), [])

    def some(self, gram: bytes) -> list[int]:
        """Return the places of an n-gram, or the first and the last of many (EXAMINED)."""
        known = self.places.get(gram)
        if known is None or isinstance(known, int) or len(known) <= EXAMINED * PLACE_WIDTH:
            return _spelled_out(known)
        half = EXAMINED // 2 * PLACE_WIDTH
        return _spelled_out(known[:half] + known[-half:])


def key_of(tokens: Sequence[int]) -> bytes:
    """Return an n-gram's key; a tuple takes twice the memory."""
    return array("i", tokens).tobytes()


class Index:
    """Find where a growing text's last n tokens occurred before, for each n of `anchors`, longest
    first. The cost of a token and of a look-up does not depend on the text's length. With four
    anchors a token takes at most 480 bytes."""

    def __init__(self, text: Sequence[int], anchors: Sequence[int]) -> None:
        self._text, self._anchors = text, anchors
        self._ends = Places()
        self._indexed = 0

    def extend(self, most: int) -> int:
        """Index up to `most` more tokens, but for the text's last; return how many."""
        last = min(len(self._text) - 1, self._indexed + most)
        if last <= self._indexed:
            return 0
        first = max(0, self._indexed + 1 - max(self._anchors))
        text, ends = self._text[first:last], [*range(self._indexed + 1, last + 1)]
        for n in self._anchors:
            self._ends.add_ends(text, n, ends[max(0, n - ends[0]) :], first)
        count, self._indexed = last - self._indexed, last
        return count

    def find(self, pattern: Sequence[int]) -> list[Occurrence]:
        """Return where the text has the pattern's last n tokens, for the longest n with any."""
        return [occurrence(self._text, end, pattern) for end in self.ends(pattern)]

    def ends(self, pattern: Sequence[int]) -> list[int]:
        """Return the indexes after these places, ascending."""
        return self._ends.last_of(pattern, self._anchors)


def _spelled_out(known: int | bytearray | None) -> list[int]:
    if known is None:
        return []
    return [known] if isinstance(known, int) else memoryview(known).cast("q").tolist()


def packed(places: Sequence[int]) -> bytearray:
    """Return several places as `Places` holds them."""
    return bytearray(b"".join([place.to_bytes(PLACE_WIDTH, sys.byteorder) for place in places]))


def occurrence(text: Sequence[int], end: int, pattern: Sequence[int]) -> Occurrence:
    """Return a place with the number of tokens before it that are the pattern's last ones."""
    lengths = range(1, min(end, len(pattern), LONGEST) + 1)
    # halving keeps the comparison in slices
    matched = bisect_left(lengths, True, key=lambda n: text[end - n : end] != pattern[-n:])
    return Occurrence(text, end, matched)
