"""What a replica has answered before, as far as it is of use."""

from collections import deque
from collections.abc import Sequence

from workers.drafting.lookup.occurrences import Occurrence, occurrence, some

ANCHORS = (8, 4, 2)
PIECE = 512
"""Tokens of a text at most: what is added or forgotten at once is bounded."""
OVERLAP = 64
"""Tokens that a piece has in common with the one before it, so that matches go on across."""
SHIFT = 20
"""A place is a piece's number and an end within it, in one integer."""


class PastAnswers:
    """Answers of a scope serve that scope alone; the oldest go where there are more than
    `capacity` tokens."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._pieces: dict[int, tuple[str, list[int]]] = {}
        self._order: deque[int] = deque()
        self._places: dict[tuple[str, tuple[int, ...]], deque[int]] = {}
        self._waiting: deque[tuple[str, list[int]]] = deque()
        self._next = 0
        self.tokens = 0
        """Of all pieces that are indexed."""

    def add(self, scope: str, answer: Sequence[int]) -> None:
        """Remember an answer, as soon as `work` comes to it."""
        step = PIECE - OVERLAP
        for start in range(0, max(1, len(answer) - OVERLAP), step):
            piece = list(answer[start : start + PIECE])
            if len(piece) > ANCHORS[-1] and len(piece) <= self._capacity:
                self._waiting.append((scope, piece))

    def work(self) -> None:
        """Index one piece that waits, and forget the oldest for it."""
        if not self._waiting:
            return
        scope, piece = self._waiting.popleft()
        while self.tokens + len(piece) > self._capacity:
            self._forget(self._order.popleft())
        number, self._next = self._next, self._next + 1
        self._pieces[number] = scope, piece
        self._order.append(number)
        self.tokens += len(piece)
        for end, gram in _grams(piece):
            self._places.setdefault((scope, gram), deque()).append(number << SHIFT | end)

    def find(self, scope: str, pattern: Sequence[int]) -> list[Occurrence]:
        """Where the scope's answers have the pattern's last tokens, as `Index.find`."""
        for n in ANCHORS:
            known = (scope, tuple(pattern[-n:]))
            places = self._places.get(known) if n <= len(pattern) else None
            if places:
                return [self._at(place, pattern) for place in some(places)]
        return []

    def clear(self) -> None:
        """Forget all of them."""
        self._pieces.clear()
        self._order.clear()
        self._places.clear()
        self._waiting.clear()
        self.tokens = 0

    def _at(self, place: int, pattern: Sequence[int]) -> Occurrence:
        _, piece = self._pieces[place >> SHIFT]
        return occurrence(piece, place & (1 << SHIFT) - 1, pattern)

    def _forget(self, number: int) -> None:
        scope, piece = self._pieces.pop(number)
        self.tokens -= len(piece)
        for _, gram in _grams(piece):
            places = self._places[scope, gram]
            places.popleft()  # its own: an older piece's are gone already
            if not places:
                del self._places[scope, gram]


def _grams(piece: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
    """The n-grams that something follows, with their ends."""
    return [
        (end, tuple(piece[end - n : end]))
        for end in range(1, len(piece))
        for n in ANCHORS
        if n <= end
    ]
