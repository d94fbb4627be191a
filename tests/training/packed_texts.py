"""Batches of whole texts, which the tests' target is trained on."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.tokens import TokenRows

ROW_LENGTHS = (256, 512, 1024, 2048)
LONG_ROW_SHARE = 0.02
OPEN_BINS = 8


@dataclass(frozen=True)
class Batch:
    """inputs, labels: int64 [rows, length]; weight: float32 [rows, length], 0 where not learned."""

    inputs: NDArray[np.int64]
    labels: NDArray[np.int64]
    weight: NDArray[np.float32]


def batches(rows: TokenRows, tokens_per_batch: int, seed: int) -> Iterator[Batch]:
    """Yield packed batches endlessly, in another order every pass.

    Rows go into bins of the shortest fitting length, since attention over 256 tokens costs a third
    of that over 1,024. A small share goes into the longest bins, so that late positions are learned
    too. Raises ValueError without rows.
    """
    if len(rows) == 0:
        raise ValueError("rows: there is nothing to train on")
    epoch = 0
    while True:
        rng = np.random.default_rng((seed, epoch))
        times = np.floor(rows.repeats + rng.random(len(rows))).astype(np.int64)
        order = rng.permutation(np.repeat(np.arange(len(rows)), times))
        chunks = [
            (length, bins[i : i + max(1, tokens_per_batch // length)])
            for length, bins in _pack(rows, order, rng).items()
            for i in range(0, len(bins), max(1, tokens_per_batch // length))
        ]
        for i in rng.permutation(len(chunks)):
            length, bins = chunks[i]
            yield _batch(rows, length, bins, tokens_per_batch)
        epoch += 1


def _pack(
    rows: TokenRows, order: NDArray[np.int64], rng: np.random.Generator
) -> dict[int, list[list[int]]]:
    """Pack rows by best fit into the most recent open bins of every length.

    A new bin is the shortest that fits, or the longest for a small share of rows.
    """
    packed: dict[int, list[list[int]]] = {n: [] for n in ROW_LENGTHS}
    open_bins: dict[int, list[_Bin]] = {n: [] for n in ROW_LENGTHS}
    far = rng.random(len(order)) < LONG_ROW_SHARE
    for i, opens_longest in zip(order, far, strict=True):
        size = min(int(rows.offsets[i + 1] - rows.offsets[i]), ROW_LENGTHS[-1])
        fitting = [b for bins in open_bins.values() for b in bins if b.room >= size]
        if fitting:
            chosen = min(fitting, key=lambda b: b.room)
        else:
            length = next(n for n in ROW_LENGTHS if size <= n)
            length = ROW_LENGTHS[-1] if opens_longest else length
            chosen = _Bin(length, [])
            packed[length].append(chosen.members)
            open_bins[length] = [*open_bins[length][1 - OPEN_BINS :], chosen]
        chosen.members.append(int(i))
        chosen.room -= size
    return packed


@dataclass
class _Bin:
    room: int
    members: list[int]


def _batch(rows: TokenRows, length: int, bins: list[list[int]], tokens: int) -> Batch:
    """Fill bins into a batch of the full shape, so that each length is compiled once."""
    count = max(1, tokens // length)
    ids = np.zeros((count, length + 1), dtype=np.int64)
    weight = np.zeros((count, length + 1), dtype=np.float32)
    for r, members in enumerate(bins):
        at = 0
        for i in members:
            row, w = rows.row(i)
            row, w = row[: length - at], w[: length - at]
            ids[r, at : at + len(row)] = row
            weight[r, at : at + len(row)] = w
            # A row's first token cannot be predicted from the row before it.
            weight[r, at] = 0.0
            at += len(row)
    return Batch(ids[:, :-1], ids[:, 1:], weight[:, 1:])
