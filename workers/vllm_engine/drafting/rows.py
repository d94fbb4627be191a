"""Selection of rows from a batch, for a drafter that serves some of the sequences."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def kept_tokens(
    query_start: npt.NDArray[np.int32], rows: Sequence[int], rejected: Sequence[int]
) -> list[npt.NDArray[np.int64]]:
    """Return where each chosen row's tokens lie in the batch, without rejected ones.

    query_start: where each row's tokens begin [batch + 1]. rejected: how many of a row's last
    tokens are void [batch].
    """
    return [
        np.arange(query_start[row], query_start[row + 1] - rejected[row], dtype=np.int64)
        for row in rows
    ]


def rejected_tokens(drafted: Sequence[int], sampled: Sequence[Sequence[int]]) -> list[int]:
    """Return how many of each row's draft tokens the target rejected. The last sampled token is
    the target's own."""
    return [
        number + 1 - len(tokens) if number else 0
        for number, tokens in zip(drafted, sampled, strict=True)
    ]


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
