"""Draws that depend only on a request's seed and the place in its answer: drafter-invariant
sampling (arXiv 2408.07978)."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Place = tuple[int, int]
"""A request's seed, and a token's index in its answer."""

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
