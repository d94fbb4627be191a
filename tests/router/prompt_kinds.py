"""Prompts of made-up kinds: unit vectors around a direction each, as an encoder would give them."""

import numpy as np
from numpy.typing import NDArray

DIMENSION = 64


class Kinds:
    """`count` kinds of prompts; `tightness` is how far a kind's mean lies from the origin."""

    def __init__(self, count: int, seed: int, tightness: float = 0.6) -> None:
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        basis = np.linalg.qr(self.rng.standard_normal((DIMENSION, DIMENSION)))[0]
        self.centres = basis[:count]
        self._tightness = np.full(count, tightness) * self.rng.uniform(0.85, 1.15, count)

    def prompts(self, kinds: NDArray[np.intp]) -> NDArray[np.float32]:
        """A prompt [n, 64] of each of these kinds [n]."""
        noise = self.rng.standard_normal((len(kinds), DIMENSION)) / np.sqrt(DIMENSION)
        strength = self._tightness[kinds][:, None]
        vectors = strength * self.centres[kinds] + np.sqrt(1.0 - strength**2) * noise
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def mixed(self, n: int, kinds: list[int]) -> NDArray[np.float32]:
        """n prompts of these kinds, evenly mixed."""
        return self.prompts(self.rng.choice(kinds, n))
