"""What an engine has answered before, as far as it is of use."""

import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workers.drafting.lookup.occurrences import (
    WIDTH,
    Occurrence,
    Places,
    key_of,
    occurrence,
    packed,
)

PAST_BYTES = 40_000_000
"""That are kept where nobody says otherwise: 60,000 tokens."""
ANCHORS = (8, 4, 2)
TOKEN_BYTES, WAITING_BYTES = 640, 40
"""That a token takes with its n-grams, where none of them came before (fewer where some did), and
one that waits to be indexed."""
PIECE_BYTES = 300
"""That a text takes beside its tokens."""
WAITING_SHARE = 0.1
"""Of the capacity: where more is answered than there is time to index, what waits longest goes, and
not what is indexed."""
PIECE = 512
"""Tokens of a text at most, and of what is indexed at once: a step waits for no more."""
SHRUNK = 4
"""A dictionary keeps the room for all that it ever held: a scope whose n-grams have become fewer
than the most it had over this gets a new one."""
OVERLAP = 64
"""Tokens that a piece has in common with the one before it, so that matches go on across."""
SHIFT = 20
"""A place is a piece's number and an end within it, in one integer."""


@dataclass
class _Scope(Places):
    """One scope's n-grams. most: how many there have been since the dictionary was made."""

    most: int = 0

    def drop(self, gram: bytes, count: int) -> None:
        """Forget the oldest so many places."""
        known = self.find(gram)[count:]
        if len(known) > 1:
            self.places[gram] = packed(known)
        elif known:
            self.places[gram] = known[0]
        else:
            del self.places[gram]

    def shrink(self) -> None:
        """Give back room that is not needed."""
        self.most = max(self.most, len(self.places))
        if SHRUNK * len(self.places) < self.most:
            self.places, self.most = dict(self.places), len(self.places)


class PastAnswers:
    """Answers of a scope serve that scope alone; the oldest go where all together would take more
    than `capacity` bytes. One store serves every drafter of an engine, and all its methods fill it.
    """

    def __init__(self, capacity: int = 0) -> None:
        """Raises ValueError where `capacity` is negative."""
        self.capacity = 0
        self._pieces: dict[int, tuple[str, list[int]]] = {}
        self._order: deque[int] = deque()
        self._scopes: dict[str, _Scope] = {}
        self._waiting: deque[tuple[str, list[int]]] = deque()
        self._next = 0
        self._indexed_bytes = self._waiting_bytes = 0
        self.want(capacity)

    @property
    def bytes(self) -> int:
        """That all of it takes at most."""
        return self._indexed_bytes + self._waiting_bytes

    def want(self, capacity: int) -> None:
        """Somebody draws on so many bytes of it: of several who do, the one who wants most says how
        much is kept. Raises ValueError where that is negative."""
        if capacity < 0:
            raise ValueError(f"past_bytes must not be negative: {capacity}")
        self.capacity = max(self.capacity, capacity)

    def add(self, scope: str, answer: Sequence[int]) -> None:
        """Remember an answer, as soon as `work` comes to it."""
        may_wait = WAITING_SHARE * self.capacity
        step = PIECE - OVERLAP
        for start in range(0, max(1, len(answer) - OVERLAP), step):
            piece = list(answer[start : start + PIECE])
            takes = _takes(piece, WAITING_BYTES)
            room = takes <= may_wait and _takes(piece, TOKEN_BYTES) <= self.capacity
            if len(piece) <= ANCHORS[-1] or not room:
                continue
            while self._waiting_bytes + takes > may_wait:
                self._await_no_more()
            self._make_room(takes)
            self._waiting.append((sys.intern(scope), piece))
            self._waiting_bytes += takes

    def work(self) -> bool:
        """Index of what waits as much as one step may wait for, and forget the oldest for it.
        Whether anything still waits."""
        left = PIECE
        while self._waiting and len(self._waiting[0][1]) <= left:
            scope, piece = self._await_no_more()
            left -= len(piece)
            self._index(scope, piece)
        return bool(self._waiting)

    def find(self, scope: str, pattern: Sequence[int]) -> list[Occurrence]:
        """Where the scope's answers have the pattern's last tokens, as `Index.find`."""
        known = self._scopes.get(scope)
        if known is None:
            return []
        for n in ANCHORS:
            places = known.some(key_of(pattern[-n:])) if n <= len(pattern) else []
            if places:
                return [self._at(place, pattern) for place in places]
        return []

    def _at(self, place: int, pattern: Sequence[int]) -> Occurrence:
        _, piece = self._pieces[place >> SHIFT]
        return occurrence(piece, place & (1 << SHIFT) - 1, pattern)

    def _index(self, scope: str, piece: list[int]) -> None:
        takes = _takes(piece, TOKEN_BYTES)
        self._make_room(takes)
        number, self._next = self._next, self._next + 1
        self._pieces[number] = scope, piece
        self._order.append(number)
        self._indexed_bytes += takes
        known = self._scopes.setdefault(scope, _Scope())
        for end, gram in _grams(piece):
            known.add(gram, number << SHIFT | end)

    def _make_room(self, more: int) -> None:
        """Forget the oldest for so many bytes; what waits is newer than all that is indexed."""
        while self.bytes + more > self.capacity:
            if self._order:
                self._forget(self._order.popleft())
            else:
                self._await_no_more()

    def _await_no_more(self) -> tuple[str, list[int]]:
        scope, piece = self._waiting.popleft()
        self._waiting_bytes -= _takes(piece, WAITING_BYTES)
        return scope, piece

    def _forget(self, number: int) -> None:
        scope, piece = self._pieces.pop(number)
        self._indexed_bytes -= _takes(piece, TOKEN_BYTES)
        known = self._scopes[scope]
        known.most = max(known.most, len(known.places))
        for gram, count in Counter(gram for _, gram in _grams(piece)).items():
            known.drop(gram, count)  # its own: an older piece's are gone already
        known.shrink()
        if not known.places:
            del self._scopes[scope]


def _takes(piece: Sequence[int], each: int) -> int:
    """Bytes, with so many for each token."""
    return PIECE_BYTES + each * len(piece)


def _grams(piece: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """The n-grams that something follows, with their ends."""
    key = key_of(piece)
    for end in range(1, len(piece)):
        for n in ANCHORS:
            if n <= end:
                yield end, key[(end - n) * WIDTH : end * WIDTH]
