"""What followed the last tokens when they occurred before, in a request or in past answers."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from workers.drafting.ease import Ease
from workers.drafting.lookup.calibration import Calibration, Kind
from workers.drafting.lookup.continuation import NOTHING, Continuation, best_continuation
from workers.drafting.lookup.occurrences import Index, Occurrence
from workers.drafting.lookup.past import PastAnswers

ANCHORS = (8, 4, 2, 1)
AT_ONCE = 1024
"""Tokens of a request that are indexed at a time: who decodes beside it waits for them."""
CERTAIN = 0.995
"""Share of a kind at most, in a text where more come than usual."""


@dataclass(slots=True)
class _State:
    """A text's index, and what was foretold of its next tokens, by which calibration."""

    text: Sequence[int]
    scope: str
    answer: int
    index: Index
    calibration: Calibration
    foretold: Continuation = NOTHING


class Foreteller:
    """SuffixDecoding (arXiv 2411.04975) with calibrated lengths: a token is foretold while it and
    all before it come with a probability of at least `least`, by how long the match is and how
    often the token followed, as was seen of all tokens that were foretold, drafted or not, more or
    less as often as in this text so far.

    past_tokens: of past answers, of a text's scope, which are kept; 0 keeps none.
    Raises ValueError for other numbers.
    """

    def __init__(self, *, least: float, past_tokens: int) -> None:
        if not 0.0 < least < 1.0:
            raise ValueError(f"least must be between 0 and 1, not {least}")
        if past_tokens < 0:
            raise ValueError(f"past_tokens must not be negative: {past_tokens}")
        self._least = least
        self.past = PastAnswers(past_tokens)
        self._own, self._others = Calibration(), Calibration()
        self._states: dict[Hashable, _State] = {}
        self._ease = Ease()

    def begin(self, key: Hashable, text: Sequence[int], scope: str, prompt_tokens: int) -> None:
        """Know a text of this name, which grows by itself; nothing where it is known."""
        if key not in self._states:
            index = Index(text, ANCHORS)
            self._states[key] = _State(text, scope, prompt_tokens, index, self._own)

    def foretell(self, key: Hashable, limit: int) -> Continuation:
        """Up to `limit` tokens that may come next in a text that is known."""
        self.past.work()
        state = self._states[key]
        state.index.extend(AT_ONCE)
        ease = self._ease.of(key)
        own = self._best(state.index.find(state.text), self._own, ease, limit)
        past = self.past.find(state.scope, state.text)
        others = self._best(past, self._others, ease, limit)
        if own.expected >= others.expected:
            state.foretold, state.calibration = own, self._own
        else:
            state.foretold, state.calibration = others, self._others
        return state.foretold

    def came(self, key: Hashable, tokens: Sequence[int]) -> None:
        """Learn which of the tokens that were foretold last came."""
        state = self._states[key]
        foretold, held, expected = state.foretold, 0, 0.0
        for token, kind, came in zip(foretold.tokens, foretold.kinds, tokens, strict=False):
            expected += state.calibration.share(kind)
            state.calibration.saw(kind, token == came)
            if token != came:
                break
            held += 1
        if expected:
            self._ease.saw(key, held, expected)
        state.foretold = NOTHING
        state.index.extend(AT_ONCE)

    def end(self, key: Hashable) -> None:
        """Forget a text, and keep its answer for others."""
        state = self._states.pop(key, None)
        self._ease.forget(key)
        if state is not None:
            self.past.add(state.scope, state.text[state.answer :])

    def _best(
        self, occurrences: Sequence[Occurrence], calibration: Calibration, ease: float, limit: int
    ) -> Continuation:
        def share(kind: Kind) -> float:
            return min(CERTAIN, ease * calibration.share(kind))

        return best_continuation(occurrences, share, limit, self._least)
