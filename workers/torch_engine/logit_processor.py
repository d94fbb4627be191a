"""A request's changes to the target's logits: grammar, bias, penalties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from schemas import DecodeRequest, SamplingParams
from workers.torch_engine.tree import TokenTree

if TYPE_CHECKING:
    from workers.torch_engine.constraint import Constraint


class LogitProcessor:
    """Apply one request's grammar, bias and penalties, and count its tokens."""

    def __init__(self, request: DecodeRequest, constraint: Constraint | None) -> None:
        sampling = request.sampling
        self.sampling = sampling
        self.penalises = _penalises(sampling)
        self._prompt = request.prompt_token_ids
        self._read = len(self._prompt)
        self._constraint = constraint
        self._advanced = len(self._prompt)
        self._counts: Tensor | None = None
        self._in_prompt: Tensor | None = None
        self._biased = torch.tensor(list(sampling.logit_bias), dtype=torch.long)
        self._bias = torch.tensor(list(sampling.logit_bias.values()), dtype=torch.float32)

    def forbid(self, tree: TokenTree, tokens: Sequence[int], logits: Tensor) -> None:
        """Set the logits [n, vocab] of forbidden tokens to -inf, in place. The rows are the
        root's, after `tokens`, and those of the tree's nodes."""
        if self._constraint is None:
            return
        self._constraint.advance(tokens[self._advanced :])
        self._advanced = len(tokens)
        allowed = torch.from_numpy(self._constraint.masks(tree)).to(logits.device)
        logits.masked_fill_(~allowed, -torch.inf)

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
    request: DecodeRequest, constraint: Constraint | None = None
) -> LogitProcessor | None:
    """Return a request's processor; None where it leaves the logits alone. constraint: of the
    request's grammar, at its beginning.
    """
    sampling = request.sampling
    if constraint is None and not sampling.logit_bias and not _penalises(sampling):
        return None
    return LogitProcessor(request, constraint)


def _penalises(sampling: SamplingParams) -> bool:
    return (
        sampling.repetition_penalty != 1.0
        or sampling.frequency_penalty != 0.0
        or sampling.presence_penalty != 0.0
    )
