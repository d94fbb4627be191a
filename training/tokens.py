"""Rows of token ids that a head is trained on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        """Return the tokens and weights of row `i`."""
        span = slice(self.offsets[i], self.offsets[i + 1])
        return self.tokens[span], self.weight[span]


def token_ids(ids: Sequence[int]) -> TokenIds:
    """Return token ids in the smallest type that holds them."""
    return np.asarray(ids, dtype=np.uint16 if max(ids, default=0) < 2**16 else np.uint32)


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
