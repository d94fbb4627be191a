"""Selection of rows from a batch, for a drafter that serves some of the sequences."""

from collections.abc import Sequence


def last_accepted(drafted: Sequence[int], sampled: Sequence[Sequence[int]]) -> list[int]:
    """Return where each row's last valid position lies among those with logits (a row has one,
    and one more for each draft token)."""
    places, start = [], 0
    for number, tokens in zip(drafted, sampled, strict=True):
        places.append(start + max(len(tokens) - 1, 0))
        start += number + 1
    return places


def masked(sampled: Sequence[list[int]], rows: Sequence[int]) -> list[list[int]]:
    """Return the sampled tokens with those of other rows left out."""
    chosen = set(rows)
    return [tokens if row in chosen else [] for row, tokens in enumerate(sampled)]
