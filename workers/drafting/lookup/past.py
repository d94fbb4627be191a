"""What an engine has answered before, as far as it is of use."""

from array import array
from collections import Counter, deque
from collections.abc import Iterator, Sequence

from workers.drafting.lookup.occurrences import Occurrence, occurrence, some

PAST_BYTES = 40_000_000
"""That are kept where nobody says otherwise: 50,000 tokens."""
ANCHORS = (8, 4, 2)
TOKEN_BYTES, WAITING_BYTES = 800, 40
"""That a token takes with its n-grams, where none of them came before (fewer where some did), and
one that waits to be indexed."""
PIECE = 512
"""Tokens of a text at most: what is added or forgotten at once is bounded."""
OVERLAP = 64
"""Tokens that a piece has in common with the one before it, so that matches go on across."""
WIDTH = array("i").itemsize
SHIFT = 20
"""A place is a piece's number and an end within it, in one integer."""


class PastAnswers:
    """Answers of a scope serve that scope alone; the oldest go where all together would take more
    than `capacity` bytes. One store serves every drafter of an engine, and all its methods fill it.
    """

    def __init__(self, capacity: int = 0) -> None:
        """Raises ValueError where `capacity` is negative."""
        self.capacity = 0
        self._pieces: dict[int, tuple[str, list[int]]] = {}
        self._order: deque[int] = deque()
        self._places: dict[str, dict[bytes, list[int]]] = {}
        self._waiting: deque[tuple[str, list[int]]] = deque()
        self._next = 0
        self._indexed_tokens = self._waiting_tokens = 0
        self.want(capacity)

    @property
    def bytes(self) -> int:
        """That all of it takes at most."""
        return self._indexed_tokens * TOKEN_BYTES + self._waiting_tokens * WAITING_BYTES

    def want(self, capacity: int) -> None:
        """Somebody draws on so many bytes of it: of several who do, the one who wants most says how
        much is kept. Raises ValueError where that is negative."""
        if capacity < 0:
            raise ValueError(f"past_bytes must not be negative: {capacity}")
        self.capacity = max(self.capacity, capacity)

    def add(self, scope: str, answer: Sequence[int]) -> None:
        """Remember an answer, as soon as `work` comes to it."""
        step = PIECE - OVERLAP
        for start in range(0, max(1, len(answer) - OVERLAP), step):
            piece = list(answer[start : start + PIECE])
            if ANCHORS[-1] < len(piece) <= self.capacity // TOKEN_BYTES:
                self._make_room(len(piece) * WAITING_BYTES)
                self._waiting.append((scope, piece))
                self._waiting_tokens += len(piece)

    def work(self) -> None:
        """Index one piece that waits, and forget the oldest for it."""
        if not self._waiting:
            return
        scope, piece = self._await_no_more()
        self._make_room(len(piece) * TOKEN_BYTES)
        number, self._next = self._next, self._next + 1
        self._pieces[number] = scope, piece
        self._order.append(number)
        self._indexed_tokens += len(piece)
        places = self._places.setdefault(scope, {})
        for end, gram in _grams(piece):
            place = number << SHIFT | end
            known = places.get(gram)
            if known is None:
                places[gram] = [place]
            else:
                known.append(place)

    def find(self, scope: str, pattern: Sequence[int]) -> list[Occurrence]:
        """Where the scope's answers have the pattern's last tokens, as `Index.find`."""
        known = self._places.get(scope, {})
        for n in ANCHORS:
            places = known.get(_key(pattern[-n:])) if n <= len(pattern) else None
            if places:
                return [self._at(place, pattern) for place in some(places)]
        return []

    def _at(self, place: int, pattern: Sequence[int]) -> Occurrence:
        _, piece = self._pieces[place >> SHIFT]
        return occurrence(piece, place & (1 << SHIFT) - 1, pattern)

    def _make_room(self, more: int) -> None:
        """Forget the oldest for so many bytes; what waits is newer than all that is indexed."""
        while self.bytes + more > self.capacity:
            if self._order:
                self._forget(self._order.popleft())
            else:
                self._await_no_more()

    def _await_no_more(self) -> tuple[str, list[int]]:
        scope, piece = self._waiting.popleft()
        self._waiting_tokens -= len(piece)
        return scope, piece

    def _forget(self, number: int) -> None:
        scope, piece = self._pieces.pop(number)
        self._indexed_tokens -= len(piece)
        places = self._places[scope]
        for gram, count in Counter(gram for _, gram in _grams(piece)).items():
            del places[gram][:count]  # its own: an older piece's are gone already
            if not places[gram]:
                del places[gram]
        if not places:
            del self._places[scope]


def _grams(piece: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """The n-grams that something follows, with their ends."""
    key = _key(piece)
    for end in range(1, len(piece)):
        for n in ANCHORS:
            if n <= end:
                yield end, key[(end - n) * WIDTH : end * WIDTH]


def _key(tokens: Sequence[int]) -> bytes:
    """Of an n-gram in the index; a tuple takes twice as much."""
    return array("i", tokens).tobytes()
