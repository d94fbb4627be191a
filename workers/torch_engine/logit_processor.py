"""A request's changes to the target's logits: grammar, least tokens, bias, penalties."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from schemas import DecodeRequest, SamplingParams
from workers.engine import RequestFaultError
from workers.torch_engine.tree import TokenTree

if TYPE_CHECKING:
    from workers.torch_engine.constraint import Constraint


class LogitProcessor:
    """Apply one request's grammar, least tokens, bias and penalties, and count its tokens.

    eos: the model's own end tokens.
    """

    def __init__(
        self, request: DecodeRequest, constraint: Constraint | None, eos: Collection[int]
    ) -> None:
        sampling = request.sampling
        self.sampling = sampling
        self.penalises = _penalises(sampling)
        self._prompt = request.prompt_token_ids
        self._read = len(self._prompt)
        self._constraint = constraint
        self._advanced = len(self._prompt)
        self._counts: Tensor | None = None
        self._in_prompt: Tensor | None = None
        self._ends = torch.tensor(sorted(sampling.ends(eos)), dtype=torch.long)
        self._biased = torch.tensor(list(sampling.logit_bias), dtype=torch.long)
        self._bias = torch.tensor(list(sampling.logit_bias.values()), dtype=torch.float32)

    def forced(self, tokens: Sequence[int], most: int) -> list[int]:
        """Return up to `most` tokens after `tokens` that the grammar forces (Constraint.forced)."""
        if self._constraint is None or most < 1:
            return []
        try:
            self._advance(self._constraint, tokens)
        except RequestFaultError:
            return []  # verification finds it again
        return self._constraint.forced(most)

    def forbid(self, tree: TokenTree, tokens: Sequence[int], logits: Tensor) -> None:
        """Set the logits [n, vocab] of forbidden tokens to -inf, in place. The rows are the
        root's, after `tokens`, and those of the tree's nodes."""
        self._forbid_ends(tree, len(tokens) - len(self._prompt), logits)
        if self._constraint is None:
            return
        self._advance(self._constraint, tokens)
        allowed = torch.from_numpy(self._constraint.masks(tree)).to(logits.device)
        logits.masked_fill_(~allowed, -torch.inf)

    def _forbid_ends(self, tree: TokenTree, answered: int, logits: Tensor) -> None:
        """Forbid end tokens in the rows before which the response has fewer than `min_tokens`."""
        left = self.sampling.min_tokens - answered
        if left <= 0:
            return
        early = [0, *(1 + node for node, depth in enumerate(tree.depths) if depth + 1 < left)]
        ends = self._ends[self._ends < logits.shape[-1]].to(logits.device)
        logits[torch.tensor(early, device=logits.device)[:, None], ends] = -torch.inf

    def _advance(self, constraint: Constraint, tokens: Sequence[int]) -> None:
        constraint.advance(tokens[self._advanced :])
        self._advanced = len(tokens)

    def add_bias(self, logits: Tensor) -> None:
        """Add the request's bias to its rows [n, vocab], in place."""
        if len(self._biased):
            logits[:, self._biased.to(logits.device)] += self._bias.to(logits.device)

    def counts(self, tokens: Sequence[int], like: Tensor) -> tuple[Tensor, Tensor]:
        """Return how often each token occurs in the output [vocab] float32, and whether in the
        prompt [vocab] bool. tokens: prompt and output, which only grow between calls."""
        if self._counts is None or self._in_prompt is None:
            self._counts = torch.zeros(like.shape[-1], device=like.device)
            self._in_prompt = torch.zeros_like(self._counts, dtype=torch.bool)
            self._in_prompt[list(self._prompt)] = True
        fresh = torch.tensor(tokens[self._read :], dtype=torch.long, device=like.device)
        self._counts.index_add_(0, fresh, torch.ones_like(fresh, dtype=torch.float32))
        self._read = len(tokens)
        return self._counts, self._in_prompt


def make_logit_processor(
    request: DecodeRequest, constraint: Constraint | None = None, eos: Collection[int] = ()
) -> LogitProcessor | None:
    """Return a request's processor; None where it leaves the logits alone.

    constraint: of the request's grammar, at its beginning. eos: the model's own end tokens.
    """
    sampling = request.sampling
    changes = constraint is not None or sampling.logit_bias or sampling.min_tokens
    if not changes and not _penalises(sampling):
        return None
    return LogitProcessor(request, constraint, eos)


def _penalises(sampling: SamplingParams) -> bool:
    return (
        sampling.repetition_penalty != 1.0
        or sampling.frequency_penalty != 0.0
        or sampling.presence_penalty != 0.0
    )
