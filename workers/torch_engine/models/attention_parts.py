"""Split attention into several calls, where one call over a padded view would take longer."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CALL_PLACES = 1000
"""Fixed cost of a call of attention on a CPU, in pairs of a place and a slot that it sees."""


@dataclass(slots=True)
class Part:
    """One call of attention: places begin .. end of the rows first .. first+sequences-1 of a
    layout, over the first `context` slots. tokens: theirs, as a slice or [sequences * places]."""

    first: int
    sequences: int
    begin: int
    end: int
    context: int
    tokens: Tensor | slice


def split(
    rows: Sequence[int], counts: Sequence[int], ends: Sequence[int]
) -> tuple[list[Part], Tensor | None]:
    """Split attention into calls for the first places of neighbouring rows and calls for the rest
    of longer rows. Return no parts where one call is best.

    rows: of the sequences, ascending. counts: their tokens in the forward. ends: their slots after
    it. Also return the order [N] that picks the tokens out of the parts' concatenated results,
    None if they are in order.

    On a CPU the time of a call is proportional to its places times the slots that they see, plus
    CALL_PLACES.
    """

    def cost(common: int) -> int:
        long = [i for i, count in enumerate(counts) if count > common]
        rest = sum((counts[i] - common) * ends[i] + CALL_PLACES for i in long)
        runs = _runs(rows, ends, common)
        return sum(_pairs(rows, ends, run, common) + CALL_PLACES for run in runs) + rest

    common = min(sorted(set(counts), reverse=True), key=cost)
    runs = _runs(rows, ends, common)
    if common == max(counts) and len(runs) == 1:
        return [], None
    starts = [0, *accumulate(counts)]
    parts, places = list[Part](), list[NDArray[np.int64]]()
    after = 0
    for run in runs:
        first = rows[run[0]]
        picked = np.zeros((rows[run[-1]] - first + 1) * common, dtype=np.int64)
        for i in run:
            own = (rows[i] - first) * common + np.arange(min(counts[i], common))
            picked[own] = starts[i] + np.arange(len(own))
            places.append(after + own)
        sequences, context = len(picked) // common, max(ends[i] for i in run)
        parts.append(Part(first - rows[0], sequences, 0, common, context, _picks(picked)))
        after += len(picked)
    for i, count in enumerate(counts):
        if count > common:
            tokens = slice(starts[i] + common, starts[i] + count)
            parts.append(Part(rows[i] - rows[0], 1, common, count, ends[i], tokens))
            places[i] = np.concatenate((places[i], after + np.arange(count - common)))
            after += count - common
    order = np.concatenate(places)
    in_order = len(order) == after and bool((order == np.arange(after)).all())
    return parts, None if in_order else torch.from_numpy(order)


def _runs(rows: Sequence[int], ends: Sequence[int], common: int) -> list[list[int]]:
    """Group the sequences whose first places share a call: the rows between them, and those that
    are shorter, must cost less than another call."""
    runs = [[0]]
    for i in range(1, len(rows)):
        joint = _pairs(rows, ends, [*runs[-1], i], common)
        apart = _pairs(rows, ends, runs[-1], common) + _pairs(rows, ends, [i], common)
        if joint <= apart + CALL_PLACES:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _pairs(rows: Sequence[int], ends: Sequence[int], run: Sequence[int], common: int) -> int:
    """Return the pairs of a place and a slot of the call for a run's first places."""
    return (rows[run[-1]] - rows[run[0]] + 1) * common * max(ends[i] for i in run)


def _picks(picked: NDArray[np.int64]) -> Tensor | slice:
    """Return tokens as a slice if they follow each other: a view is faster than a gather."""
    follow = bool((np.diff(picked) == 1).all())
    return slice(picked[0], picked[-1] + 1) if follow else torch.from_numpy(picked)
