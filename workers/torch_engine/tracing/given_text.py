"""A known answer, and the acceptance of drafts at its positions."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from schemas import SamplingParams
from workers.torch_engine.distribution import warp


@dataclass(slots=True)
class GivenText:
    """A prompt with the target's own answer.

    states: what the target's forward over prompt and answer gives at each token, by capture,
    [tokens, hidden]. p: of each answer token, the probability under the request's sampling that
    the target gave it; 1 for its favourite at temperature 0, else 0.
    """

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    sampling: SamplingParams
    states: dict[int, Tensor]
    p: list[float]
    kept: list[tuple[float, ...]] = field(default_factory=list)
    """Per position from the second answer token on: the probability that the first, the first
    two, ... draft tokens are kept, given that the answer goes on as it does."""
    confidences: list[tuple[float, ...]] = field(default_factory=list)
    """Alike: the drafter's probability of its favourite at each level that was drafted on the
    answer's own path, or what a drafter on the host expects of its token; () for drafters that say
    nothing of the kind."""


def probabilities(logits: Tensor, tokens: Tensor, sampling: SamplingParams) -> list[float]:
    """Return `GivenText.p` for logits [n, vocab] and the n tokens that followed."""
    if sampling.temperature == 0.0:
        found = (logits.argmax(-1) == tokens).float()
    else:
        found = warp(logits, sampling).gather(1, tokens[:, None]).view(-1)
    values: list[float] = found.tolist()
    return values


def favourites(logits: Tensor) -> list[float]:
    """Return the largest probability of each row [n, vocab], at temperature 1."""
    values: list[float] = (logits.amax(-1) - torch.logsumexp(logits, -1)).exp().tolist()
    return values
