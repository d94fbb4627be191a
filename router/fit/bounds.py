"""The fewest seconds that speculation could take on an answer with known acceptance."""

from collections.abc import Callable, Mapping, Sequence

Kept = Sequence[int]
"""Accepted draft tokens of one drafter at each position of an answer, from its second token on."""
Cost = Callable[[str | None, int], float]
"""Seconds of a step in which a drafter (or None) drafts this many tokens, all of them accepted."""


def fixed_seconds(kept: Kept, step: float) -> float:
    """Return the seconds of an answer with one drafter, at `step` seconds per step."""
    position, seconds = 0, 0.0
    while position < len(kept):
        seconds += step
        position += kept[position] + 1
    return seconds


def longest_seconds(kept: Mapping[str, Kept], cost: Cost) -> float:
    """Return the seconds when the drafter with most accepted tokens drafts just these.

    Ties go to the cheapest. With several drafters this is Oracle_Combine, with one the oracle
    length (Liu et al., section 8).
    """
    tokens, position, seconds = _tokens(kept), 0, 0.0
    while position < tokens:
        most = min(max(own[position] for own in kept.values()), tokens - position - 1)
        equals = [name if most else None for name, own in kept.items() if own[position] >= most]
        seconds += min(cost(name, most) for name in equals)
        position += most + 1
    return seconds


def best_seconds(kept: Mapping[str, Kept], cost: Cost) -> float:
    """Return the seconds of the cheapest schedule: any drafter or none, any accepted length.

    It is below `longest_seconds` when long drafts are expensive.
    """
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
    """Return the tokens after the first. Raises ValueError for answers of different lengths."""
    lengths = {len(own) for own in kept.values()}
    if len(lengths) != 1:
        raise ValueError(f"positions of one answer, not {sorted(lengths)}")
    return lengths.pop()
