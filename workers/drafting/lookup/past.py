"""Past responses of an engine, indexed for look-ups."""

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
"""Default capacity: 60,000 tokens."""
ANCHORS = (8, 4, 2)
TOKEN_BYTES, WAITING_BYTES, PIECE_BYTES = 640, 40, 300
"""Upper bounds on the memory of an indexed token with its n-grams, of one that waits to be indexed,
and of a piece in addition to its tokens."""
WAITING_SHARE = 0.1
"""Share of the capacity for responses that wait: where more is answered than there is time to
index, the oldest waiting answer is dropped, and not what is indexed."""
PIECE = 512
"""Most tokens of a piece, and of what one step indexes."""
OVERLAP = 64
"""Tokens that a piece shares with the one before it, so that matches go on across."""
SHRUNK = 4
"""A dictionary keeps the room for all that it ever held: a scope with fewer n-grams than its peak
over this gets a new one."""
SHIFT = 20
"""Bits of the end within a piece, in a place's integer; the piece's number is above them."""


@dataclass
class _Scope(Places):
    """The n-grams of one scope. most: how many there have been since the dictionary was made."""

    most: int = 0

    def drop(self, gram: bytes, count: int) -> None:
        """Forget the oldest `count` places of an n-gram."""
        self.most = max(self.most, len(self.places))
        known = self.find(gram)[count:]
        if len(known) > 1:
            self.places[gram] = packed(known)
        elif known:
            self.places[gram] = known[0]
        else:
            del self.places[gram]

    def shrink(self) -> None:
        """Give back room that is not needed."""
        if SHRUNK * len(self.places) < self.most:
            self.places, self.most = dict(self.places), len(self.places)


class PastAnswers:
    """Keep the newest answers of all methods within `capacity` bytes, each for its scope alone.

    Raises ValueError for a negative capacity.
    """

    def __init__(self, capacity: int = 0) -> None:
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
        """An upper bound on its memory."""
        return self._indexed_bytes + self._waiting_bytes

    def want(self, capacity: int) -> None:
        """Raise the capacity to what one more drafter wants. Raises ValueError if negative."""
        if capacity < 0:
            raise ValueError(f"past_bytes must not be negative: {capacity}")
        self.capacity = max(self.capacity, capacity)

    def add(self, scope: str, answer: Sequence[int]) -> None:
        """Add a response, which `work` indexes later."""
        may_wait = WAITING_SHARE * self.capacity
        for start in range(0, max(1, len(answer) - OVERLAP), PIECE - OVERLAP):
            piece = list(answer[start : start + PIECE])
            takes = _takes(piece, WAITING_BYTES)
            room = takes <= may_wait and _takes(piece, TOKEN_BYTES) <= self.capacity
            if len(piece) <= ANCHORS[-1] or not room:
                continue
            while self._waiting_bytes + takes > may_wait:
                self._next_waiting()
            self._make_room(takes)
            self._waiting.append((sys.intern(scope), piece))
            self._waiting_bytes += takes

    def work(self) -> bool:
        """Index as many waiting tokens as one step may wait for, and forget the oldest for them;
        return whether any still wait."""
        left = PIECE
        while self._waiting and len(self._waiting[0][1]) <= left:
            scope, piece = self._next_waiting()
            left -= len(piece)
            self._index(scope, piece)
        return bool(self._waiting)

    def find(self, scope: str, pattern: Sequence[int]) -> list[Occurrence]:
        """Return where the scope's answers have the pattern's last tokens; see Index.find."""
        known = self._scopes.get(scope)
        places = [] if known is None else known.last_of(pattern, ANCHORS)
        return [self._at(place, pattern) for place in places]

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
        """Forget the oldest answers for so many bytes; waiting ones are the newest."""
        while self.bytes + more > self.capacity:
            if self._order:
                self._forget(self._order.popleft())
            else:
                self._next_waiting()

    def _next_waiting(self) -> tuple[str, list[int]]:
        scope, piece = self._waiting.popleft()
        self._waiting_bytes -= _takes(piece, WAITING_BYTES)
        return scope, piece

    def _forget(self, number: int) -> None:
        scope, piece = self._pieces.pop(number)
        self._indexed_bytes -= _takes(piece, TOKEN_BYTES)
        known = self._scopes[scope]
        for gram, count in Counter(gram for _, gram in _grams(piece)).items():
            known.drop(gram, count)  # older pieces are gone already
        known.shrink()
        if not known.places:
            del self._scopes[scope]


def _takes(piece: Sequence[int], each: int) -> int:
    """Return an upper bound on a piece's memory, with so many bytes a token."""
    return PIECE_BYTES + each * len(piece)


def _grams(piece: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the n-grams that a token follows, with their ends."""
    key = key_of(piece)
    for end in range(1, len(piece)):
        for n in ANCHORS:
            if n <= end:
                yield end, key[(end - n) * WIDTH : end * WIDTH]
