"""A drafter's logits over its own vocabulary, which may be a part of the target's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.torch_engine.models.transfer import indices


@dataclass(frozen=True, slots=True)
class DraftLogits:
    """Logits of n rows over `size` tokens.

    values: float32 [n, size]. ids: int64 [size], the target's token of each column; None if the
    columns are the target's vocabulary. vocab: size of the target's vocabulary. Choosing among
    `size` columns takes time in proportion to `size`.
    """

    values: Tensor
    ids: Tensor | None
    vocab: int

    @classmethod
    def of_all(cls, values: Tensor) -> DraftLogits:
        """Wrap logits [n, vocab] of a drafter that knows all of the target's tokens."""
        return cls(values, None, values.shape[-1])

    def __len__(self) -> int:
        return len(self.values)

    def best(self, k: int) -> tuple[list[list[float]], list[list[int]]]:
        """Return per row the log probabilities of its k best tokens and the tokens, best first."""
        known = self._at_least(k)
        top = known.values.log_softmax(-1).topk(k)
        return top.values.tolist(), known._named(top.indices)

    def best_tokens(self, k: int) -> list[list[int]]:
        """Return per row its k best tokens, best first."""
        known = self._at_least(k)
        return known._named(known.values.topk(k).indices)

    def favourites(self) -> list[int]:
        """Return each row's best token."""
        return [row[0] for row in self._named(self.values.argmax(-1, keepdim=True))]

    def rows(self, rows: Sequence[int]) -> DraftLogits:
        """Return some of the rows."""
        picked = self.values[indices(rows, self.values.device)]
        return DraftLogits(picked, self.ids, self.vocab)

    def unbind(self) -> list[DraftLogits]:
        """Return each row by itself."""
        return [DraftLogits(row, self.ids, self.vocab) for row in self.values[:, None].unbind()]

    def whole(self) -> Tensor:
        """Return logits [n, vocab], -inf for tokens that the drafter does not know."""
        if self.ids is None:
            return self.values
        full = self.values.new_full((len(self.values), self.vocab), -torch.inf)
        return full.index_copy_(1, self.ids, self.values)

    def _at_least(self, k: int) -> DraftLogits:
        """Return logits of at least k tokens, with unknown ones if necessary."""
        return self if k <= self.values.shape[-1] else DraftLogits.of_all(self.whole())

    def _named(self, columns: Tensor) -> list[list[int]]:
        tokens: list[list[int]] = (columns if self.ids is None else self.ids[columns]).tolist()
        return tokens
