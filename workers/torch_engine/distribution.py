"""Warped distributions of logits, and draws from them.

Draws under a seed depend only on it and the place in the response: drafter-invariant sampling
(arXiv 2408.07978).
"""

import math
import random
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas import SamplingParams
from workers.torch_engine.models.transfer import indices, on

LIKELIEST = 256
"""Most probable tokens that are searched for a nucleus before all are sorted."""


def warp(logits: Tensor, sampling: SamplingParams) -> Tensor:
    """Return probabilities [n, vocab] float32 of logits [n, vocab] under a request's sampling.

    The order is vLLM's: temperature, min-p (drops what has less than min_p times the best token's
    probability), top-k, top-p. Ties as in Hugging Face's logits processors: those with the k-th
    logit stay; top-p keeps the smallest set whose mass reaches top_p, at least one token.
    Temperature must be above 0; at 0 callers take the argmax instead.
    """
    scores = logits.float()
    # The best token's score is 0, so that no temperature makes another one infinite.
    scores = (scores - scores.amax(dim=-1, keepdim=True)) / sampling.temperature
    if sampling.min_p > 0.0:
        scores = scores.masked_fill(scores < math.log(sampling.min_p), -torch.inf)
    if 0 < sampling.top_k < scores.shape[-1]:
        kth = scores.topk(sampling.top_k, dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores < kth, -torch.inf)
    probabilities = scores.softmax(-1)
    if sampling.top_p < 1.0:
        probabilities = _nucleus(probabilities, sampling.top_p)
    return probabilities


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Return probabilities [n, vocab] of the smallest set whose mass reaches top_p alone.

    Each row is decided by itself. Of equal tokens at the set's end those with the lowest ids belong
    to it: which of them `topk` names first may depend on the other rows.

    The most probable tokens are usually enough: sorting six rows of 49,152 takes 26 ms on a
    core, as long as a small target's forward; finding the 256 most probable takes 1 ms.
    """
    vocab = probabilities.shape[-1]
    falling = probabilities.topk(min(LIKELIEST, vocab), dim=-1).values
    least, ties, tied, enough = _ends(falling, top_p)
    short = (~enough).nonzero()[:, 0]
    if len(short) and vocab > LIKELIEST:
        falling = probabilities[short].sort(dim=-1, descending=True).values
        least[short], ties[short], tied[short], _ = _ends(falling, top_p)
    outside = probabilities < least
    if bool(tied.any()):
        equal = probabilities == least
        outside |= equal & (equal.cumsum(-1) > ties)
    inside = probabilities.masked_fill_(outside, 0.0)
    return inside.div_(inside.sum(-1, keepdim=True))


def _ends(falling: Tensor, top_p: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return of each row of falling probabilities [n, k] the one [n, 1] at which their mass reaches
    top_p, how many equal ones it takes for that [n, 1], whether there may be more of them [n, 1],
    and whether k are enough [n].

    At least one token is taken.
    """
    last = falling.shape[-1] - 1
    behind = (falling.cumsum(-1) < top_p).sum(-1, keepdim=True)
    least = falling.gather(-1, behind.clamp(max=last))
    tied = (behind >= last) | (falling.gather(-1, (behind + 1).clamp(max=last)) == least)
    ties = behind.clamp(max=last) + 1 - (falling > least).sum(-1, keepdim=True)
    return least, ties, tied, behind[:, 0] <= last


def warp_each(logits: Tensor, samplings: Sequence[SamplingParams]) -> Tensor:
    """Warp each row under its own parameters; rows that share them are computed together."""
    groups: dict[tuple[float, float, int, float], list[int]] = {}
    for row, sampling in enumerate(samplings):
        key = (sampling.temperature, sampling.min_p, sampling.top_k, sampling.top_p)
        groups.setdefault(key, []).append(row)
    if len(groups) == 1:
        return warp(logits, samplings[0])
    warped = torch.empty_like(logits)
    for rows in groups.values():
        warped[rows] = warp(logits[rows], samplings[rows[0]])
    return warped


def draw(weights: Tensor, uniforms: Sequence[float]) -> list[int]:
    """Draw one index per row of weights [n, vocab], by inversion of n uniforms.

    Weights need not sum to 1; a weight of 0 is never drawn. Sums are in float64, so that large
    vocabularies lose nothing.
    """
    sums = weights.double().cumsum(-1)
    u = on(torch.tensor(uniforms, dtype=torch.float64), weights.device)[:, None]
    picked = torch.searchsorted(sums, u * sums[:, -1:], right=True).view(-1)
    drawn: list[int] = picked.clamp_(max=weights.shape[-1] - 1).tolist()
    return drawn


def draw_distinct(q: Tensor, uniforms: Sequence[Sequence[float]]) -> list[tuple[list[int], Tensor]]:
    """Draw different indices per row of q [n, vocab], one for each list of n uniforms.

    Return, per list, one index per row and the distributions [n, vocab] they were drawn from: q
    without the indices drawn before, renormalised; where nothing is left, uniform over the rest.
    """
    drawn: list[tuple[list[int], Tensor]] = []
    left, undrawn = q, torch.ones_like(q)
    for draws in uniforms:
        mass = left.sum(-1, keepdim=True)
        given = torch.where(mass > 0.0, left / mass, undrawn / undrawn.sum(-1, keepdim=True))
        tokens = draw(given, draws)
        drawn.append((tokens, given))
        taken = indices(tokens, q.device)[:, None]
        left, undrawn = given.scatter(1, taken, 0.0), undrawn.scatter(1, taken, 0.0)
    return drawn


def uniforms(n: int, rng: random.Random) -> list[float]:
    """Return n independent draws from [0, 1) of a request's generator."""
    return [rng.random() for _ in range(n)]


Place = tuple[int, int]
"""A request's seed, and a token's index in its response."""

KNOWN = 64
"""Places whose noise is cached: a drafter and the target draw at the same ones."""
SEEDS = 1 << 64


def draw_at(weights: Tensor, places: Sequence[Place]) -> list[int]:
    """Draw one index per row of weights [n, vocab], by an exponential race under the noise of
    each row's place: argmax of log weight + Gumbel noise. Weights need not sum to 1.

    Under the same noise two distributions p and q draw the same index with a probability of at
    least (1 - TV) / (1 + TV). A weight of 0 is drawn only where all are.
    """
    vocab = weights.shape[-1]
    noise = torch.from_numpy(np.stack([_exponential(*place, vocab) for place in places]))
    drawn: list[int] = (weights.double() / noise.to(weights.device)).argmax(-1).tolist()
    return drawn


@lru_cache(maxsize=KNOWN)
def _exponential(seed: int, index: int, vocab: int) -> NDArray[np.float64]:
    """Return exponential draws [vocab] float64, the same on every machine (Philox)."""
    bits = np.random.Philox(key=seed % SEEDS, counter=[0, 0, index, 0])
    return np.random.Generator(bits).standard_exponential(vocab)
