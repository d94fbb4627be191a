"""Where the last tokens of a text occurred before."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

EXAMINED = 32
"""Occurrences of an n-gram that are compared, the earliest and the latest half of them."""
LONGEST = 64
"""Tokens up to which a match is compared."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A place in a text whose `matched` tokens before `start` are the last of a pattern."""

    text: Sequence[int]
    start: int
    matched: int


class Index:
    """The ends of a growing text's n-grams, for each n of `anchors`, longest first.

    A token costs an entry for each n, and so does a look-up, however long the text is.
    """

    def __init__(self, text: Sequence[int], anchors: Sequence[int]) -> None:
        self._text, self._anchors = text, anchors
        self._ends: dict[tuple[int, ...], list[int]] = {}
        self._indexed = 0

    def extend(self, most: int) -> None:
        """Index up to so many tokens more of the n-grams that something follows: those that end
        before the text's last token."""
        last = min(len(self._text) - 1, self._indexed + most)
        for end in range(self._indexed + 1, last + 1):
            for n in self._anchors:
                if n <= end:
                    self._ends.setdefault(tuple(self._text[end - n : end]), []).append(end)
        self._indexed = max(self._indexed, last)

    def find(self, pattern: Sequence[int]) -> list[Occurrence]:
        """Where the text has the pattern's last tokens, by the longest n that it knows them of;
        some of the places where there are many."""
        for n in self._anchors:
            ends = self._ends.get(tuple(pattern[-n:])) if n <= len(pattern) else None
            if ends is not None:
                return [occurrence(self._text, end, pattern) for end in some(ends)]
        return []


def some(places: Sequence[int]) -> Iterable[int]:
    """All of them, or the first and the last where they are more than EXAMINED."""
    if len(places) <= EXAMINED:
        return places
    half = EXAMINED // 2
    return [*(places[i] for i in range(half)), *(places[i] for i in range(-half, 0))]


def occurrence(text: Sequence[int], end: int, pattern: Sequence[int]) -> Occurrence:
    """The place, and how many tokens before it are the pattern's last ones."""
    low, high = 0, min(end, len(pattern), LONGEST)
    while low < high:  # halving keeps the comparison in slices
        middle = (low + high + 1) // 2
        if text[end - middle : end] == pattern[len(pattern) - middle :]:
            low = middle
        else:
            high = middle - 1
    return Occurrence(text, end, low)
