"""Picking some rows out of a batch: for a drafter that serves only a part of the sequences."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def kept_tokens(
    query_start: npt.NDArray[np.int32], rows: Sequence[int], rejected: Sequence[int]
) -> tuple[Ints, Ints]:
    """Where the chosen rows' tokens lie in the batch, without those the target rejected.

    query_start: [batch + 1], where each row's tokens begin; rejected: [batch], how many of a
    row's last tokens are void. Returns the tokens' places [tokens], row after row, and where each
    chosen row begins among them [rows + 1].
    """
    places = [
        np.arange(query_start[row], query_start[row + 1] - rejected[row], dtype=np.int64)
        for row in rows
    ]
    starts = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(place) for place in places], out=starts[1:])
    return np.concatenate(places), starts


def rejected_tokens(drafted: Sequence[int], sampled: Sequence[Sequence[int]]) -> list[int]:
    """How many of each row's drafted tokens the target rejected: all that were drafted, less the
    sampled ones but the last, which is the target's own."""
    return [
        number + 1 - len(tokens) if number else 0
        for number, tokens in zip(drafted, sampled, strict=True)
    ]


def last_accepted(drafted: Sequence[int], sampled: Sequence[Sequence[int]]) -> list[int]:
    """Where each row's last valid position lies among the positions the target gave logits for
    (a row has one, and one more for each of its drafted tokens)."""
    places, start = [], 0
    for number, tokens in zip(drafted, sampled, strict=True):
        places.append(start + max(len(tokens) - 1, 0))
        start += number + 1
    return places


def masked(sampled: Sequence[list[int]], rows: Sequence[int]) -> list[list[int]]:
    """The sampled tokens with every other row's left out, which drafters read as "not mine"."""
    chosen = set(rows)
    return [tokens if row in chosen else [] for row, tokens in enumerate(sampled)]
