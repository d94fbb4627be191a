"""Which share of their prompts' tokens methods find in the prefix cache, learned from answers.

A drafter that cannot go on from a remembered prefix finds none, whatever its prompts are.
"""

import numpy as np

from router.belief import Floats
from router.fading import FadingSums

PRIOR_ANSWERS = 4.0
"""Answers' worth of belief that a method finds nothing: prompts of their average length."""


class CachedShare(FadingSums):
    """Cached tokens over all prompt tokens, of m methods' answers. A prompt that goes on with a
    conversation is cached and the next one is new, so that it takes `half_life` of a method's
    answers, as many as its acceptance, to know the mix of them."""

    def __init__(self, methods: int, half_life: float) -> None:
        names = ("cached_tokens", "looked_up_tokens", "looked_up_answers")
        super().__init__(methods, names, half_life, half_life)

    def observe(self, method: int, cached: int, prompt: int) -> None:
        """Of an answer's `prompt` tokens so many were `cached`."""
        self.add(method, (cached, prompt, 1.0))

    def values(self) -> Floats:
        """The share of each method's prompt tokens [m], shrunk toward 0."""
        cached, prompt, answers = self.columns
        found = cached / np.maximum(prompt, 1e-9)
        return np.asarray(found * answers / (answers + PRIOR_ANSWERS))
