"""What followed where the last tokens occurred, and how sure it is (SuffixDecoding, arXiv
2411.04975, with shares that were measured in the place of counts)."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workers.drafting.lookup.calibration import Kind, kind_of
from workers.drafting.lookup.occurrences import Occurrence

MATCHES = 3
"""Lengths of matches that are tried, the longest ones: a shorter match has more occurrences."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """Tokens that are foretold: their kinds, and per token the probability that it and all before
    it come."""

    tokens: tuple[int, ...]
    kinds: tuple[Kind, ...]
    survival: tuple[float, ...]

    @property
    def expected(self) -> float:
        """Tokens of it that come, on the mean."""
        return sum(self.survival)


NOTHING = Continuation((), (), ())


def best_continuation(
    occurrences: Sequence[Occurrence], share: Callable[[Kind], float], limit: int, least: float
) -> Continuation:
    """The one of which most tokens are expected.

    share: how often tokens of a kind come. limit: tokens at most; least: survival below which it
    ends.
    """
    lengths = sorted({o.matched for o in occurrences}, reverse=True)[:MATCHES]
    found = [
        _followed([o for o in occurrences if o.matched >= matched], matched, share, limit, least)
        for matched in lengths
    ]
    return max(found, key=lambda one: one.expected, default=NOTHING)


def _followed(
    among: Sequence[Occurrence],
    matched: int,
    share: Callable[[Kind], float],
    limit: int,
    least: float,
) -> Continuation:
    tokens: list[int] = []
    kinds: list[Kind] = []
    survival: list[float] = []
    sure = 1.0
    while len(tokens) < limit:
        at = len(tokens)
        among = [o for o in among if o.start + at < len(o.text)]
        if not among:
            break
        after = [o.text[o.start + at] for o in among]
        token, followed = after[0], after.count(after[0])
        if 2 * followed <= len(after):
            token, followed = Counter(after).most_common(1)[0]
        # what was foretold so far lengthens the match
        kind = kind_of(matched + at, followed, len(after))
        sure *= share(kind)
        if sure < least:
            break
        tokens.append(token)
        kinds.append(kind)
        survival.append(sure)
        if followed < len(after):
            among = [o for o, next_one in zip(among, after, strict=True) if next_one == token]
    return Continuation(tuple(tokens), tuple(kinds), tuple(survival))
