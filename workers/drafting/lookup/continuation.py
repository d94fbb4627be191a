"""What followed the last tokens elsewhere, with probabilities (SuffixDecoding, arXiv 2411.04975,
with measured acceptance in place of counts)."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workers.drafting.lookup.calibration import Kind, kind_of
from workers.drafting.lookup.occurrences import Occurrence

MATCHES = 3
"""Match lengths that are tried, the longest first: a shorter match has more occurrences."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """Predicted tokens, with the probability that each and all before it are accepted."""

    tokens: tuple[int, ...]
    kinds: tuple[Kind, ...]
    probabilities: tuple[float, ...]

    @property
    def expected(self) -> float:
        """The expected number of accepted tokens."""
        return sum(self.probabilities)


NOTHING = Continuation((), (), ())


def best_continuation(
    occurrences: Sequence[Occurrence], share: Callable[[Kind], float], limit: int, least: float
) -> Continuation:
    """Return the continuation with the most expected tokens.

    share: acceptance of a kind's tokens. limit: most tokens. least: probability below which it
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
    tokens, kinds, probabilities = list[int](), list[Kind](), list[float]()
    probability = 1.0
    while len(tokens) < limit:
        at = len(tokens)
        among = [o for o in among if o.start + at < len(o.text)]
        if not among:
            break
        after = [o.text[o.start + at] for o in among]
        token, followed = after[0], after.count(after[0])
        if 2 * followed <= len(after):
            token, followed = Counter(after).most_common(1)[0]
        # the tokens predicted so far lengthen the match
        kind = kind_of(matched + at, followed, len(after))
        probability *= share(kind)
        if probability < least:
            break
        tokens.append(token)
        kinds.append(kind)
        probabilities.append(probability)
        if followed < len(after):
            among = [o for o, next_one in zip(among, after, strict=True) if next_one == token]
    return Continuation(tuple(tokens), tuple(kinds), tuple(probabilities))
