"""Pack rows into bins of one length for the training of heads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.tokens import TokenRows

OPEN_BINS = 16

LEARNED_SHARE = 0.5
"""Share of a batch's slots that are learned from. It is fixed, so that one graph is compiled.
Answers are about half of the text; if they are more, some are left out at random."""


@dataclass(frozen=True)
class HeadBatch:
    """A batch for a head.

    inputs, labels int64 [rows, length]. weight float32 [rows, length]: 0 where not learned from.
    documents int64 [rows, length]: the number of each token's row of the data, 0 for padding. bins
    int64 [rows]: numbers of the bins. slots int64 [n]: flat places that are learned from. weights
    float32 [n, positions]: how much each drafted position of a slot counts.
    """

    inputs: NDArray[np.int64]
    labels: NDArray[np.int64]
    weight: NDArray[np.float32]
    documents: NDArray[np.int64]
    bins: NDArray[np.int64]
    slots: NDArray[np.int64]
    weights: NDArray[np.float32]


class PackedRows:
    """A fixed packing of rows into bins of `length` tokens; longer rows are cut.

    The target's states of a bin serve every pass. A row occurs as often as its `repeats` say, drawn
    once for all passes. Raises ValueError without rows.
    """

    def __init__(self, rows: TokenRows, length: int, positions: int, seed: int = 0) -> None:
        if len(rows) == 0:
            raise ValueError("rows: there is nothing to train on")
        self.rows, self.length, self.positions, self.seed = rows, length, positions, seed
        rng = np.random.default_rng(seed)
        times = np.floor(rows.repeats + rng.random(len(rows))).astype(np.int64)
        order = rng.permutation(np.repeat(np.arange(len(rows)), times))
        self.bins = _pack(np.diff(rows.offsets), order, length)

    def __len__(self) -> int:
        return len(self.bins)

    def batches(self, tokens: int) -> Iterator[HeadBatch]:
        """Yield batches of `tokens` tokens endlessly, with the bins in another order every pass."""
        count = max(1, tokens // self.length)
        epoch = 0
        while True:
            rng = np.random.default_rng((self.seed, epoch))
            order = rng.permutation(len(self.bins))
            order = np.resize(order, -(-len(order) // count) * count)
            for start in range(0, len(order), count):
                yield self.batch(order[start : start + count], rng)
            epoch += 1

    def batch(self, bins: NDArray[np.int64], rng: np.random.Generator | None = None) -> HeadBatch:
        """Return the batch of some bins. `rng` chooses among answers if they exceed the slots."""
        shape = (len(bins), self.length + 1)
        ids, weight = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
        documents = np.zeros(shape, dtype=np.int64)
        for place, number in enumerate(bins):
            at = 0
            for document, row in enumerate(self.bins[number], start=1):
                tokens, w = self.rows.row(row)
                span = slice(at, at + min(len(tokens), self.length - at))
                ids[place, span] = tokens[: self.length - at]
                weight[place, span] = w[: self.length - at]
                documents[place, span] = document
                # A row's first token cannot be predicted from the row before it.
                weight[place, at] = 0.0
                at = span.stop
        labels, weight, documents = ids[:, 1:], weight[:, 1:], documents[:, :-1]
        by_position = _position_weights(weight, documents, self.positions)
        slots = _slots(by_position[:, 0], rng or np.random.default_rng(0))
        return HeadBatch(ids[:, :-1], labels, weight, documents, bins, slots, by_position[slots])


def _pack(
    sizes: NDArray[np.int64], order: NDArray[np.int64], length: int
) -> list[NDArray[np.int64]]:
    """Pack rows by best fit into the most recently opened bins."""
    packed: list[list[int]] = []
    room: list[int] = []
    for row in order:
        size = min(int(sizes[row]), length)
        first = max(0, len(packed) - OPEN_BINS)
        fitting = [i for i in range(first, len(packed)) if room[i] >= size]
        if fitting:
            chosen = min(fitting, key=lambda i: room[i])
        else:
            chosen = len(packed)
            packed.append([])
            room.append(length)
        packed[chosen].append(int(row))
        room[chosen] -= size
    return [np.asarray(bin_rows, dtype=np.int64) for bin_rows in packed]


def _position_weights(
    weight: NDArray[np.float32], documents: NDArray[np.int64], positions: int
) -> NDArray[np.float32]:
    """Return weights [rows * length, positions].

    Position j of slot i has the weight of label i + 1 + j if that belongs to the same row of the
    data, else 0.
    """
    result = np.zeros((*weight.shape, positions), dtype=np.float32)
    length = weight.shape[1]
    for j in range(positions):
        ahead = 1 + j
        if ahead < length:
            same = documents[:, ahead:] == documents[:, : length - ahead]
            result[:, : length - ahead, j] = weight[:, ahead:] * same
    return result.reshape(-1, positions)


def _slots(first: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a fixed number of flat places, those with a weight in `first` before others."""
    count = int(len(first) * LEARNED_SHARE)
    key = rng.random(len(first)) - (first > 0)
    return np.sort(np.argpartition(key, count - 1)[:count])


def frequent_tokens(rows: TokenRows, count: int, vocabulary: int) -> NDArray[np.int64]:
    """Return the `count` most frequent answer tokens of a pass, ascending."""
    seen = token_counts(rows, vocabulary)
    return np.sort(np.argsort(-seen, kind="stable")[:count])


def token_counts(rows: TokenRows, vocabulary: int) -> NDArray[np.float64]:
    """Return how often each token is learned in a pass, [vocabulary]."""
    weight = rows.weight * np.repeat(rows.repeats, np.diff(rows.offsets))
    return np.bincount(rows.tokens, weights=weight, minlength=vocabulary).astype(np.float64)


def first_rows(rows: TokenRows, domain: str, count: int) -> TokenRows | None:
    """Return the first `count` rows of a domain, each once, or None if there are none."""
    chosen = np.flatnonzero(rows.domain == rows.domains.index(domain))[:count]
    return picked(rows, chosen) if len(chosen) else None


def picked(rows: TokenRows, chosen: Sequence[int] | NDArray[np.int64]) -> TokenRows:
    """Return some of the rows, each once."""
    parts = [rows.row(int(i)) for i in chosen]
    offsets = np.concatenate(([0], np.cumsum([len(t) for t, _ in parts]))).astype(np.int64)
    return TokenRows(
        np.concatenate([t for t, _ in parts]),
        np.concatenate([w for _, w in parts]),
        offsets,
        np.ones(len(parts), dtype=np.float32),
        rows.domain[np.asarray(chosen)],
        rows.domains,
    )
