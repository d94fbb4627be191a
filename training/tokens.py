"""Tokenise rows, store them, and pack them into batches for training."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.corpus import Message, Row
from workers.chat_template import encode_turns

ROW_LENGTHS = (256, 512, 1024, 2048)
LONG_ROW_SHARE = 0.02
OPEN_BINS = 8
PROMPT_WEIGHT = 0.25

TokenIds = NDArray[np.unsignedinteger[Any]]
"""uint16, or uint32 for a larger vocabulary."""


@dataclass(frozen=True)
class TokenRows:
    """n rows end to end.

    tokens [total]. weight float32 [total]: how much the prediction of each token counts. offsets
    int64 [n + 1]. repeats float32 [n]: how often a pass over the data sees the row. domain int16
    [n], an index of `domains`.
    """

    tokens: TokenIds
    weight: NDArray[np.float32]
    offsets: NDArray[np.int64]
    repeats: NDArray[np.float32]
    domain: NDArray[np.int16]
    domains: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, i: int) -> tuple[TokenIds, NDArray[np.float32]]:
        span = slice(self.offsets[i], self.offsets[i + 1])
        return self.tokens[span], self.weight[span]

    def save(self, file: Path) -> None:
        np.savez(
            file,
            tokens=self.tokens,
            weight=self.weight,
            offsets=self.offsets,
            repeats=self.repeats,
            domain=self.domain,
            domains=np.array(self.domains),
        )

    @classmethod
    def load(cls, file: Path) -> "TokenRows":
        with np.load(file) as a:
            return cls(
                a["tokens"],
                a["weight"],
                a["offsets"],
                a["repeats"],
                a["domain"],
                tuple(str(d) for d in a["domains"]),
            )


def tokenise(rows: Sequence[Row], tokenizer: Any) -> TokenRows:
    """Tokenise rows. Assistant tokens weigh 1, the others PROMPT_WEIGHT."""
    domains = tuple(sorted({str(r["domain"]) for r in rows}))
    tokens: list[TokenIds] = []
    weights: list[NDArray[np.float32]] = []
    for row in rows:
        ids, weight = encode_weighted(tokenizer, row["messages"])
        tokens.append(token_ids(ids))
        weights.append(np.asarray(weight, dtype=np.float32))
    lengths = [len(t) for t in tokens]
    return TokenRows(
        np.concatenate(tokens),
        np.concatenate(weights),
        np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        np.ones(len(rows), dtype=np.float32),
        np.asarray([domains.index(str(r["domain"])) for r in rows], dtype=np.int16),
        domains,
    )


def token_ids(ids: Sequence[int]) -> TokenIds:
    """Return token ids in the smallest type that holds them."""
    return np.asarray(ids, dtype=np.uint16 if max(ids, default=0) < 2**16 else np.uint32)


def encode_weighted(tokenizer: Any, messages: Sequence[Message]) -> tuple[list[int], list[float]]:
    """Return the token ids of a conversation and, per token, the weight of predicting it.

    Tokens that a template writes after the end token of an answer are not part of the answer, since
    decoding stops there.
    """
    ids: list[int] = []
    weight: list[float] = []
    for message, (header, rest) in zip(messages, encode_turns(tokenizer, messages), strict=True):
        spoken = 0
        if message["role"] == "assistant":
            end = tokenizer.eos_token_id
            spoken = len(rest) - rest[::-1].index(end) if end in rest else len(rest)
        ids += header + rest
        weight += [PROMPT_WEIGHT] * len(header) + [1.0] * spoken
        weight += [PROMPT_WEIGHT] * (len(rest) - spoken)
    return ids, [0.0, *weight[1:]]


def answers_only(rows: TokenRows) -> TokenRows:
    """Return the rows with a weight of 0 for prompts."""
    return replace(rows, weight=(rows.weight == 1.0).astype(np.float32))


def mixed(rows: TokenRows, others: TokenRows, share: float) -> TokenRows:
    """Return `rows` with as many of `others` as make up `share` of a pass's weight; 0 <= share < 1.

    Each pass draws `others` anew, in their own proportions.
    """
    scale = share / (1 - share) * _weight_of_a_pass(rows) / _weight_of_a_pass(others)
    domains = tuple(sorted({*rows.domains, *others.domains}))
    return TokenRows(
        np.concatenate((rows.tokens, others.tokens)),
        np.concatenate((rows.weight, others.weight)),
        np.concatenate((rows.offsets, rows.offsets[-1] + others.offsets[1:])),
        np.concatenate((rows.repeats, others.repeats * np.float32(scale))),
        np.concatenate(
            [
                np.asarray([domains.index(d) for d in r.domains], dtype=np.int16)[r.domain]
                for r in (rows, others)
            ]
        ),
        domains,
    )


def _weight_of_a_pass(rows: TokenRows) -> float:
    return float(np.add.reduceat(rows.weight, rows.offsets[:-1]) @ rows.repeats)


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
