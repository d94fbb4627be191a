"""The results of a target forward."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(slots=True)
class TargetOutput:
    """A target forward's results; `logits` [rows, vocab] float32, rows as Proposal.row says.

    Verifiers decide on `logits`, which requests may have biased, penalised or masked; `raw` are
    the target's own.
    dead: rows after which no token can be chosen; what `logits` hold there means nothing.
    hidden: captured states [tokens, hidden] of all tokens of the forward; `starts` gives each
    sequence's first token there, by sequence id, `pending` how many committed tokens precede its
    tree.
    """

    logits: Tensor
    hidden: dict[int, Tensor]
    starts: dict[int, int]
    pending: dict[int, int]
    unprocessed: Tensor | None = None
    dead: frozenset[int] = frozenset()
    _best: list[int] | None = field(default=None, init=False)

    @property
    def raw(self) -> Tensor:
        """The target's logits [rows, vocab] float32 before any request's processing."""
        return self.logits if self.unprocessed is None else self.unprocessed

    def read(self, *, best: bool) -> list[bool]:
        """Return per row whether it is NaN or infinite. With `best` read the most probable tokens
        in the same transfer, since each waits for the device.

        Sums tell, which cost a tenth of an argmax. A token that the model rules out is -inf.
        """
        sums = self.logits.sum(-1)
        spoilt = sums.isnan() | (sums == torch.inf)
        # tracing a known text computes rows without logits
        if not best or not self.logits.shape[-1]:
            return list[bool](spoilt.tolist())
        self._best, flags = torch.stack((self.logits.argmax(-1), spoilt.long())).tolist()
        return list(map(bool, flags))

    def add_dead(self, count: int) -> None:
        """Add dead rows at the end."""
        first, vocab = self.logits.shape
        self.logits = torch.cat((self.logits, self.logits.new_zeros(count, vocab)))
        self.dead, self._best = frozenset(range(first, first + count)), None

    @property
    def best(self) -> list[int]:
        """The target's most probable token per row; computed once for the whole batch."""
        if self._best is None:
            self._best = self.logits.argmax(-1).tolist()
        return self._best
