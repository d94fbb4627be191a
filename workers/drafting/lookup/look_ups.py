"""Look-ups of many texts' next tokens, in the texts themselves, in past answers and in a
datastore."""

import math
import sys
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

from workers.drafting.fading import FadingRatio
from workers.drafting.lookup.calibration import (
    OTHERS,
    OWN,
    PREDICTED,
    STORED,
    Before,
    Calibration,
    Kind,
    Odds,
)
from workers.drafting.lookup.continuation import NOTHING, Continuation, best_continuation
from workers.drafting.lookup.datastore import Datastore
from workers.drafting.lookup.occurrences import Index
from workers.drafting.lookup.past import PastAnswers
from workers.drafting.lookup.prediction import Prediction

ANCHORS = (8, 4, 2, 1)
PER_STEP, EACH = 512, 32
"""Tokens of all texts that one step indexes, for which every sequence waits; and of each text at
least, so that its answer is known while long prompts are read."""
RATE = 0.25
"""How much one token moves the log-odds of its text's look-ups (a logistic regression's step)."""
LEAST_TRUST = 0.5
MISSES, MOST_REST = 8, 7
"""After MISSES look-ups in a row without an accepted token, a text skips the datastore for one
token after each look-up, after twice as many for two, and so on up to MOST_REST. A look-up in the
datastore takes as long as all others together."""


@dataclass(slots=True)
class _Text:
    """A text that grows outside.

    prediction: its client's, if any. offsets: log-odds of its look-ups relative to the usual ones,
    by kind of source. misses, rest: see MISSES. looked_up: its last continuation, found in
    `source`.
    """

    tokens: Sequence[int]
    scope: str
    greedy: bool
    index: Index
    prediction: Prediction | None
    source: Calibration
    offsets: dict[Odds, float] = field(default_factory=lambda: defaultdict(float))
    misses: int = 0
    rest: int = 0
    looked_up: Continuation = NOTHING

    def share(self, usual: Calibration, kind: Kind) -> float:
        """Return the acceptance of a kind in this text."""
        share = usual.share(kind)
        odds = math.exp(self.offsets[usual.odds]) * share
        return odds / (odds + 1.0 - share)


class LookUps:
    """Predict tokens as in SuffixDecoding (arXiv 2411.04975), with calibrated probabilities.

    A token is predicted while it and all tokens before it are accepted with a probability of at
    least `least`. Acceptance is learned from all predicted tokens, drafted or not: apart for the
    text itself, for past answers, for clients' predictions and for the datastore, and for
    temperature 0. Verified tokens are those with the highest expectations, which are too high, so
    `trust` scales all.

    past: earlier answers; a text sees those of its own scope. datastore: other texts. Raises
    ValueError where `least` is not between 0 and 1.
    """

    def __init__(
        self, *, least: float, past: PastAnswers, datastore: Datastore | None = None
    ) -> None:
        if not 0.0 < least < 1.0:
            raise ValueError(f"least must be between 0 and 1, got {least}")
        self._least, self._past, self._datastore = least, past, datastore
        self._own = _calibrations(OWN)
        self._others = _calibrations(OTHERS)
        self._predicted = _calibrations(PREDICTED, "prediction")
        self._stored = _calibrations(STORED, "datastore")
        self._trust = FadingRatio(weight=10.0, memory=150.0)
        self._texts: dict[Hashable, _Text] = {}
        self._left = sys.maxsize
        """Tokens that this step may still index. Before the first step no sequence waits."""

    @property
    def bytes(self) -> int:
        """An upper bound on the memory of all indexes."""
        return sum(text.index.bytes for text in list(self._texts.values()))

    @property
    def trust(self) -> float:
        """Accepted over expected tokens of verified look-ups, at most 1."""
        return min(1.0, max(LEAST_TRUST, self._trust.value))

    def step(self) -> None:
        """Begin a step, in which texts may be indexed again."""
        self._left = PER_STEP
        if self._datastore is not None:
            self._datastore.follow()

    def begin(
        self,
        key: Hashable,
        tokens: Sequence[int],
        scope: str,
        *,
        greedy: bool,
        prediction: Prediction | None = None,
    ) -> None:
        """Add a text, which the caller appends to; do nothing for a known one."""
        if key not in self._texts:
            index = Index(tokens, ANCHORS)
            self._texts[key] = _Text(tokens, scope, greedy, index, prediction, self._own[greedy])

    def look_up(self, key: Hashable, limit: int) -> Continuation:
        """Return up to `limit` tokens that may come next in a text."""
        text = self._texts[key]
        self._left -= text.index.extend(max(EACH, self._left))
        sources = [
            (self._own[text.greedy], text.index.find(text.tokens)),
            (self._others[text.greedy], self._past.find(text.scope, text.tokens)),
        ]
        if text.prediction is not None:
            predicted = text.prediction.occurrences(text.tokens)
            sources.append((self._predicted[text.greedy], predicted))
        if self._datastore is not None and not text.rest:
            stored = self._datastore.find(text.scope, text.tokens)
            sources.append((self._stored[text.greedy], stored))
        found = NOTHING
        for source, occurrences in sources:
            share = partial(text.share, source)
            one = best_continuation(occurrences, share, limit, self._least)
            if one.expected > found.expected:
                found, text.source = one, source
        text.looked_up = found
        trusted = tuple([self.trust * p for p in found.probabilities])
        return Continuation(found.tokens, found.kinds, trusted)

    def learn(self, key: Hashable, tokens: Sequence[int], verified: int) -> None:
        """Learn which tokens of the last look-up the target chose. verified: how many of them were
        drafted, with no other drafter's tokens."""
        text = self._texts[key]
        looked_up, accepted = text.looked_up, 0
        for token, kind, chosen in zip(looked_up.tokens, looked_up.kinds, tokens, strict=False):
            surprise = (token == chosen) - text.share(text.source, kind)
            text.offsets[text.source.odds] += RATE * surprise
            text.source.saw(kind, token == chosen)
            if token != chosen:
                break
            accepted += 1
        if text.rest:
            text.rest -= 1
        else:
            helped = accepted and text.source is self._stored[text.greedy]
            text.misses = 0 if helped else text.misses + 1
            text.rest = min(MOST_REST, text.misses // MISSES)
        if verified:
            expected = sum(looked_up.probabilities[:verified])
            self._trust.saw(min(accepted, verified), expected)
        text.looked_up = NOTHING

    def end(self, key: Hashable) -> None:
        """Forget a text."""
        self._texts.pop(key, None)


def _calibrations(before: Before, odds: Odds = "texts") -> dict[bool, Calibration]:
    """Return a source's calibrations, by whether the temperature is 0."""
    return {greedy: Calibration(before, odds) for greedy in (False, True)}
