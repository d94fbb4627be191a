"""A drafter's logits over the tokens that it knows, which may be few of the target's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.torch_engine.models.transfer import indices


@dataclass(frozen=True, slots=True)
class DraftLogits:
    """values: float32 [n, size]. ids: int64 [size], the target's token of each column; None where
    the columns are the target's vocabulary. vocab: the target's tokens.

    Choosing tokens among `size` is what most methods do, and costs a sixth of choosing among the
    whole vocabulary where that has six times as many.
    """

    values: Tensor
    ids: Tensor | None
    vocab: int

    @classmethod
    def of_all(cls, values: Tensor) -> DraftLogits:
        """Logits [n, vocab] of a drafter that knows all of the target's tokens."""
        return cls(values, None, values.shape[-1])

    def __len__(self) -> int:
        return len(self.values)

    def best(self, k: int) -> tuple[list[list[float]], list[list[int]]]:
        """Per row the log probabilities of its k best tokens, and these, the best first."""
        known = self._at_least(k)
        top = known.values.log_softmax(-1).topk(k)
        return top.values.tolist(), known._named(top.indices)

    def best_tokens(self, k: int) -> list[list[int]]:
        """Per row its k best tokens, the best first."""
        known = self._at_least(k)
        return known._named(known.values.topk(k).indices)

    def favourites(self) -> list[int]:
        """Each row's best token."""
        return [row[0] for row in self._named(self.values.argmax(-1, keepdim=True))]

    def rows(self, rows: Sequence[int]) -> DraftLogits:
        """Some of the rows."""
        picked = self.values[indices(rows, self.values.device)]
        return DraftLogits(picked, self.ids, self.vocab)

    def unbind(self) -> list[DraftLogits]:
        """Each row by itself."""
        return [DraftLogits(row, self.ids, self.vocab) for row in self.values[:, None].unbind()]

    def whole(self) -> Tensor:
        """Logits [n, vocab]: -inf for every token that the drafter cannot say."""
        if self.ids is None:
            return self.values
        full = self.values.new_full((len(self.values), self.vocab), -torch.inf)
        return full.index_copy_(1, self.ids, self.values)

    def _at_least(self, k: int) -> DraftLogits:
        """The same where k tokens are known, else with those that cannot be said."""
        return self if k <= self.values.shape[-1] else DraftLogits.of_all(self.whole())

    def _named(self, columns: Tensor) -> list[list[int]]:
        tokens: list[list[int]] = (columns if self.ids is None else self.ids[columns]).tolist()
        return tokens
