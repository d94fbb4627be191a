"""One response's place in its grammar, with a limit on the matcher's cost."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import llguidance.numpy
import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from workers.engine import RequestFaultError

BURST_SECONDS = 0.25
SECONDS_PER_MASK = 0.005
"""CPU time that a response's masks and the steps between them may take: a burst, and so much per
mask. llguidance reports a mean of 0.05 ms and a 99th percentile of 0.5 ms over public schemas. All
requests of a batch wait for a mask, so a grammar that needs more ends its own response."""


@dataclass(slots=True)
class Spent:
    """What following a grammar has cost. seconds: of CPU time."""

    masks: int = 0
    seconds: float = 0.0

    @property
    def too_much(self) -> bool:
        """Return whether the masks took longer than a response's may."""
        return self.seconds > BURST_SECONDS + SECONDS_PER_MASK * self.masks


class AnswerMatcher:
    """A matcher whose errors and excessive costs end the request, not the engine.

    spent: shared with its copies; by default nothing.
    """

    def __init__(self, matcher: LLMatcher, spent: Spent | None = None) -> None:
        self._matcher = matcher
        self._tokens = 0
        self._spent = spent or Spent()

    @property
    def ended(self) -> bool:
        """Return whether the response may end here."""
        return bool(self._matcher.is_accepting())

    @property
    def masks(self) -> int:
        """Return how many masks it and its copies have computed."""
        return self._spent.masks

    @property
    def mean_seconds(self) -> float:
        """Return the CPU time of a mask and the steps before it."""
        return self._spent.seconds / max(1, self._spent.masks)

    def advance(self, tokens: Sequence[int]) -> None:
        """Follow emitted tokens. Raises RequestFaultError if the grammar does not allow them."""
        began = time.thread_time()
        followed = self._matcher.consume_tokens(list(tokens))
        self._spent.seconds += time.thread_time() - began
        if not followed:
            raise RequestFaultError(self._fault(_reason(self._matcher)))
        self._tokens += len(tokens)

    def back(self) -> None:
        """Take the last token back. Raises RequestFaultError if the matcher cannot."""
        if not self._matcher.rollback(1):
            raise RequestFaultError(self._fault(_reason(self._matcher)))
        self._tokens -= 1

    def fill(self, bits: NDArray[np.int32], row: int) -> None:
        """Write the mask of the next token to a row of bits [n, vocab / 32].

        Raises RequestFaultError if no token may follow, or if following the grammar costs too much.
        """
        began, spent = time.thread_time(), self._spent
        llguidance.numpy.fill_next_token_bitmask(self._matcher, bits, row)
        spent.seconds += time.thread_time() - began
        spent.masks += 1
        if self._matcher.is_error():
            raise RequestFaultError(self._fault(_reason(self._matcher)))
        if spent.too_much:
            slow = f"it is too slow to follow: {spent.masks} masks took {spent.seconds:.2f} s"
            raise RequestFaultError(self._fault(slow))

    def allowed(self, vocab: int) -> NDArray[np.intp]:
        """Return the tokens that may follow, ascending. Raises RequestFaultError as `fill`."""
        bits = llguidance.numpy.allocate_token_bitmask(1, vocab)
        self.fill(bits, 0)
        return np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))

    def copy(self, spent: Spent | None = None) -> "AnswerMatcher":
        """Return another matcher at the same place. spent: counts what it costs; by default what
        either costs counts for both."""
        other = AnswerMatcher(self._matcher.deep_copy(), spent or self._spent)
        other._tokens = self._tokens
        return other

    def _fault(self, reason: str) -> str:
        return f"grammar: the answer cannot follow it after {self._tokens} tokens: {reason}"


def _reason(matcher: LLMatcher) -> str:
    error = str(matcher.get_error()).partition("\n")[0]
    return "no token may follow" if error.startswith("NoExtension") else error
