"""The fewest seconds that speculation could take on an answer, were it known what is kept."""

from collections.abc import Callable, Mapping, Sequence

Kept = Sequence[int]
"""Of one drafter: how many of its draft tokens are kept at each position of an answer, from its
second token on."""
Cost = Callable[[str | None, int], float]
"""Seconds of a step in which a drafter, or none, drafts so many tokens, all of which are kept."""


def fixed_seconds(kept: Kept, step: float) -> float:
    """One drafter all the way, every step of which takes so many seconds."""
    position, seconds = 0, 0.0
    while position < len(kept):
        seconds += step
        position += kept[position] + 1
    return seconds


def longest_seconds(kept: Mapping[str, Kept], cost: Cost) -> float:
    """At each position the drafter of whose tokens most are kept drafts just these, the cheapest
    where several are: Oracle_Combine of several drafters, oracle length of a single one (Liu et
    al., section 8)."""
    tokens, position, seconds = _tokens(kept), 0, 0.0
    while position < tokens:
        most = min(max(own[position] for own in kept.values()), tokens - position - 1)
        equals = [name if most else None for name, own in kept.items() if own[position] >= most]
        seconds += min(cost(name, most) for name in equals)
        position += most + 1
    return seconds


def best_seconds(kept: Mapping[str, Kept], cost: Cost) -> float:
    """The cheapest of all schedules: any drafter, or none, with any number of tokens that are
    kept, at every position. Below `longest_seconds` where a long draft is dear."""
    tokens = _tokens(kept)
    left = [0.0] * (tokens + 1)  # seconds from a position on
    plain = cost(None, 0)
    for position in range(tokens - 1, -1, -1):
        left[position] = plain + left[position + 1]
        for name, own in kept.items():
            for length in range(1, min(own[position], tokens - position - 1) + 1):
                seconds = cost(name, length) + left[position + length + 1]
                left[position] = min(left[position], seconds)
    return left[0]


def _tokens(kept: Mapping[str, Kept]) -> int:
    """Tokens after the first; raises ValueError where drafters speak of different answers."""
    lengths = {len(own) for own in kept.values()}
    if len(lengths) != 1:
        raise ValueError(f"positions of one answer, not {sorted(lengths)}")
    return lengths.pop()
