"""What followed the last tokens when they occurred before, in a request or in past answers."""

import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from workers.drafting.lookup.calibration import OTHERS, OWN, Calibration, TextCalibration
from workers.drafting.lookup.continuation import NOTHING, Continuation, best_continuation
from workers.drafting.lookup.occurrences import Index
from workers.drafting.lookup.past import PastAnswers
from workers.drafting.promises import Promises

ANCHORS = (8, 4, 2, 1)
PER_STEP, EACH = 512, 32
"""Tokens of all requests that are indexed in one step, for which everybody who decodes waits; and
of each request at least, so that its own answer is known while long prompts are read."""


@dataclass(slots=True)
class _State:
    """A text's index, what it and past answers are judged by, and what was foretold of its next
    tokens, by which of the two."""

    text: Sequence[int]
    scope: str
    index: Index
    own: TextCalibration
    others: TextCalibration
    calibration: TextCalibration
    promises: Promises
    foretold: Continuation = NOTHING


class Foreteller:
    """SuffixDecoding (arXiv 2411.04975) with calibrated lengths: a token is foretold while it and
    all before it come with a probability of at least `least`, by how long the match is and how
    often the token followed, as was seen of all tokens that were foretold, drafted or not: apart
    for a text itself and for past answers, for answers at temperature 0 and others. What is
    promised of them is that, times what lately came of tokens that were verified, over what was
    expected of these.

    past: answers that were given before, of which those of a text's own scope are looked at; who
    holds it fills it.
    Raises ValueError where `least` is no such probability.
    """

    def __init__(self, *, least: float, past: PastAnswers) -> None:
        if not 0.0 < least < 1.0:
            raise ValueError(f"least must be between 0 and 1, not {least}")
        self._least, self._past = least, past
        self._own = {greedy: Calibration(OWN) for greedy in (False, True)}
        self._others = {greedy: Calibration(OTHERS) for greedy in (False, True)}
        self._promises = {greedy: Promises() for greedy in (False, True)}
        self._states: dict[Hashable, _State] = {}
        self._left = sys.maxsize
        """Tokens that may still be indexed in this step; before the first one nobody waits."""

    @property
    def bytes(self) -> int:
        """That the indexes of all texts take at most."""
        return sum(state.index.bytes for state in list(self._states.values()))

    def step(self) -> None:
        """A step begins, in which so much of the texts may be indexed anew."""
        self._left = PER_STEP

    def begin(self, key: Hashable, text: Sequence[int], scope: str, *, greedy: bool) -> None:
        """Know a text of this name, which grows by itself; nothing where it is known."""
        if key not in self._states:
            index = Index(text, ANCHORS)
            own, others = (TextCalibration(of[greedy]) for of in (self._own, self._others))
            promises = self._promises[greedy]
            self._states[key] = _State(text, scope, index, own, others, own, promises)

    def foretell(self, key: Hashable, limit: int) -> Continuation:
        """Up to `limit` tokens that may come next in a text that is known."""
        state = self._states[key]
        self._left -= state.index.extend(max(EACH, self._left))
        occurrences = state.index.find(state.text)
        own = best_continuation(occurrences, state.own.share, limit, self._least)
        past = self._past.find(state.scope, state.text)
        others = best_continuation(past, state.others.share, limit, self._least)
        if own.expected >= others.expected:
            state.foretold, state.calibration = own, state.own
        else:
            state.foretold, state.calibration = others, state.others
        found = state.foretold
        if not found.tokens:
            return found
        kept = state.promises.kept
        return Continuation(
            found.tokens, found.kinds, tuple([min(1.0, kept * sure) for sure in found.survival])
        )

    def came(self, key: Hashable, tokens: Sequence[int], verified: int) -> None:
        """Learn which of the tokens that were foretold last came. The first `verified` of them were
        drafted, for nothing but that they were foretold."""
        state = self._states[key]
        foretold, held = state.foretold, 0
        for token, kind, came in zip(foretold.tokens, foretold.kinds, tokens, strict=False):
            state.calibration.saw(kind, token == came)
            if token != came:
                break
            held += 1
        if verified:
            state.promises.saw(sum(foretold.survival[:verified]), min(held, verified))
        state.foretold = NOTHING

    def end(self, key: Hashable) -> None:
        """Forget a text."""
        self._states.pop(key, None)
