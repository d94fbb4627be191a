"""A response's place in the text that its client predicted."""

from collections.abc import Sequence

import numpy as np

from workers.drafting.lookup.occurrences import EXAMINED, LONGEST, Occurrence, occurrence

SURE = 8
"""Tokens of a match above which the nearest place counts, not the longest match."""
MOST = 48
"""Tokens that a step copies at most, whatever its method's limit."""
PATIENCE = 8
"""By how many more tokens a response may differ than agree, before only SURE matches are copied."""
NEAR = 16
"""Tokens after the last known place within which one equal token is enough to go on."""


class Prediction:
    """Follow a response through a text that it is expected to resemble.

    While they agree, the place moves on with the response. Where they differ, text was replaced,
    inserted or left out: then the place is where the response's last tokens occur, the longest
    match first, then the nearest. Until they occur, one token is taken to be replaced by another.

    text: the predicted tokens. begins: index of the response's first token in the sequence.
    """

    def __init__(self, text: Sequence[int], begins: int) -> None:
        self.drafted = self.accepted = 0
        """Tokens that were verified as drafts, and those of them that were accepted."""
        self._text, self._array = list(text), np.array(text)
        self._begins = self._read = begins
        self._right = self._wrong = 0
        self._place = self._known = self._matched = self._misses = 0
        self._asked = False

    def room(self, tokens: Sequence[int]) -> int:
        """Return how many tokens may be copied next: few after a difference, then twice as many as
        were right in a row. tokens: prompt and response, which only grow between calls."""
        self._follow(tokens)
        return min(MOST, 2 * self._matched + 2) if self._believed else 0

    def occurrences(self, tokens: Sequence[int]) -> list[Occurrence]:
        """Return the place in the prediction of a sequence's next token; none where it is
        unknown."""
        self._follow(tokens)
        self._asked = self._believed
        at = Occurrence(self._text, self._place, max(1, self._matched))
        return [at] if self._believed else []

    def draft(self, tokens: Sequence[int], most: int, matched: int) -> list[int]:
        """Return up to `most` predicted next tokens; none if fewer tokens before them match than
        `matched`."""
        room = min(most, self.room(tokens))
        self._asked = room > 0 and self._matched >= matched
        return self.ahead[:room]

    @property
    def ahead(self) -> list[int]:
        """The predicted tokens that a step could draft; none if it did not look them up."""
        return self._text[self._place : self._place + MOST] if self._asked else []

    def count(self, drafted: int, accepted: int) -> None:
        """Count a step's draft tokens that are those of `ahead`, and how many were accepted."""
        self.drafted += drafted
        self.accepted += accepted
        self._asked = False

    @property
    def _believed(self) -> bool:
        """Whether the place is known, in a prediction that the response resembles."""
        resembles = self._wrong <= self._right + PATIENCE or self._matched >= SURE
        return resembles and self._misses <= 1 and self._place < len(self._text)

    def _follow(self, tokens: Sequence[int]) -> None:
        new = tokens[self._read :]
        self._read = len(tokens)
        for token in new:
            if self._text[self._place : self._place + 1] == [token]:
                self._matched, self._misses = self._matched + 1, 0
                self._place += 1
                self._right += 1
            else:
                self._wrong += 1
                self._matched, self._misses = 0, self._misses + 1
                self._place += self._place > 0  # before the text begins, text is rather inserted
            if self._matched > 1:
                self._known = self._place
        if new and not self._matched:
            self._seek(list(tokens[max(self._begins, len(tokens) - LONGEST) :]))

    def _seek(self, pattern: list[int]) -> None:
        """Go to where the response's last tokens occur, if they do."""
        ends = np.flatnonzero(self._array == pattern[-1]) + 1
        nearest = ends[np.argsort(np.abs(ends - self._known), kind="stable")[:EXAMINED]]
        found = [occurrence(self._text, end, pattern) for end in nearest.tolist()]
        best = max(found, key=self._rank, default=None)
        if best is not None and (best.matched > 1 or 0 <= best.start - self._known <= NEAR):
            self._place, self._matched, self._misses = best.start, best.matched, 0

    def _rank(self, at: Occurrence) -> tuple[int, int]:
        """Return what the best place has most of: matched tokens, then nearness, ahead if equal."""
        begins = not self._known and at.matched == at.start  # nothing is before it to be matched
        ahead = at.start - self._known
        return SURE if begins else min(at.matched, SURE), -(ahead if ahead > 0 else 1 - 2 * ahead)
