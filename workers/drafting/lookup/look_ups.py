"""Look-ups of many texts' next tokens, in the texts themselves, in past responses and in a
datastore (SuffixDecoding, arXiv 2411.04975, with measured acceptance in place of counts)."""

import math
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from workers.drafting.estimates import Estimates
from workers.drafting.lookup.datastore import Datastore
from workers.drafting.lookup.occurrences import Index, Occurrence
from workers.drafting.lookup.past import PastAnswers
from workers.drafting.lookup.prediction import Prediction

Agreement = Literal["once", "all", "most", "few"]
Kind = tuple[int, Agreement]
"""Tokens of the match, of LENGTHS; how many of the match's occurrences the token followed."""

LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 20)
Before = Mapping[Agreement, Sequence[float]]
"""Acceptance before anything is seen, by LENGTHS."""
OWN: Before = {
    "once": (0.30, 0.55, 0.66, 0.73, 0.78, 0.79, 0.87, 0.90, 0.97),
    "all": (0.51, 0.77, 0.81, 0.88, 0.90, 0.90, 0.96, 0.99, 0.995),
    "most": (0.41,) * len(LENGTHS),
    "few": (0.14,) * len(LENGTHS),
}
"""Of what followed in the same text."""
OTHERS: Before = {
    "once": (0.20, 0.26, 0.35, 0.42, 0.49, 0.58, 0.63, 0.78, 0.85),
    "all": (0.40, 0.52, 0.55, 0.71, 0.75, 0.83, 0.84, 0.95, 0.99),
    "most": (0.41,) * len(LENGTHS),
    "few": (0.16,) * len(LENGTHS),
}
"""Of what followed in past responses. Both were measured on 400 answers of SmolLM2-135M at
temperature 0, of nine domains."""
PREDICTED: Before = {
    "once": (0.50, 0.65, 0.75, 0.82, 0.86, 0.88, 0.92, 0.96, 0.985),
}
"""Of what the client predicted, by the tokens that were right in a row. The response has one place
in it, so every token of it followed once."""
STORED: Before = {
    "once": (0.10, 0.15, 0.21, 0.21, 0.27, 0.33, 0.58, 0.65, 0.75),
    "all": (0.20, 0.30, 0.41, 0.47, 0.50, 0.63, 0.74, 0.85, 0.90),
    "most": (0.33,) * len(LENGTHS),
    "few": (0.12,) * len(LENGTHS),
}
"""For a datastore that the responses do not quote. Measured on 200 answers of SmolLM2-135M at
temperature 0, in 2.2 million tokens of other responses. Matches of one or two are not looked up."""
Odds = Literal["texts", "prediction", "datastore"]
"""The kinds of sources that have odds of their own in each text."""
SOURCES: Sequence[tuple[str, Before, Odds]] = (
    ("own", OWN, "texts"),
    ("others", OTHERS, "texts"),
    ("predicted", PREDICTED, "prediction"),
    ("stored", STORED, "datastore"),
)
WEIGHT, MEMORY = 20.0, 2000.0


def kind_of(matched: int, followed: int, of: int) -> Kind:
    """Return the kind of a token that followed so often after `of` occurrences of a match."""
    length = LENGTHS[bisect_right(LENGTHS, matched) - 1]
    if of == 1:
        return length, "once"
    if followed == of:
        return length, "all"
    return length, "most" if 2 * followed > of else "few"


class Calibration:
    """Learn the acceptance of each kind from every looked-up token of which the target's choice is
    known, drafted or not."""

    def __init__(
        self,
        before: Before,
        odds: Odds = "texts",
        estimates: Estimates | None = None,
        *name: str | bool,
    ) -> None:
        self.odds, known = odds, estimates or Estimates()
        self._ratios = {
            (length, agreement): known.of(
                *("look-up", *name, length, agreement), prior=share, weight=WEIGHT, memory=MEMORY
            )
            for agreement, shares in before.items()
            for length, share in zip(LENGTHS, shares, strict=True)
        }

    def share(self, kind: Kind) -> float:
        """Return how often tokens of a kind are accepted where those before them are."""
        return self._ratios[kind].value

    def saw(self, kind: Kind, accepted: bool) -> None:
        """Learn whether a token of a kind was the target's choice."""
        self._ratios[kind].saw(accepted)


MATCHES = 3
"""Match lengths that are tried, the longest first: a shorter match has more occurrences."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """Predicted tokens, with the probability that each and all before it are accepted."""

    tokens: tuple[int, ...]
    kinds: tuple[Kind, ...]
    probabilities: tuple[float, ...]

    @property
    def expected(self) -> float:
        """The expected number of accepted tokens."""
        return sum(self.probabilities)


NOTHING = Continuation((), (), ())


def best_continuation(
    occurrences: Sequence[Occurrence], share: Callable[[Kind], float], limit: int, least: float
) -> Continuation:
    """Return the continuation with the most expected tokens.

    share: acceptance of a kind's tokens. limit: most tokens. least: probability below which it
    ends.
    """
    lengths = sorted({o.matched for o in occurrences}, reverse=True)[:MATCHES]
    found = [
        _followed([o for o in occurrences if o.matched >= matched], matched, share, limit, least)
        for matched in lengths
    ]
    return max(found, key=lambda one: one.expected, default=NOTHING)


def _followed(
    among: Sequence[Occurrence],
    matched: int,
    share: Callable[[Kind], float],
    limit: int,
    least: float,
) -> Continuation:
    tokens, kinds, probabilities = list[int](), list[Kind](), list[float]()
    probability = 1.0
    while len(tokens) < limit:
        at = len(tokens)
        among = [o for o in among if o.start + at < len(o.text)]
        if not among:
            break
        after = [o.text[o.start + at] for o in among]
        token, followed = after[0], after.count(after[0])
        if 2 * followed <= len(after):
            token, followed = Counter(after).most_common(1)[0]
        # the tokens predicted so far lengthen the match
        kind = kind_of(matched + at, followed, len(after))
        probability *= share(kind)
        if probability < least:
            break
        tokens.append(token)
        kinds.append(kind)
        probabilities.append(probability)
        if followed < len(after):
            among = [o for o, next_one in zip(among, after, strict=True) if next_one == token]
    return Continuation(tuple(tokens), tuple(kinds), tuple(probabilities))


ANCHORS = (8, 4, 2, 1)
PER_STEP, EACH = 512, 32
"""Tokens of all texts that one step indexes, for which every sequence waits; and of each text at
least, so that its response is known while long prompts are read."""
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
    text itself, for past responses, for clients' predictions and for the datastore, and for
    temperature 0. Verified tokens are those with the highest expectations, which are too high, so
    `trust` scales all.

    past: earlier responses; a text sees those of its own scope. datastore: other texts. estimates:
    of the caller, where it stores them. Raises ValueError where `least` is not between 0 and 1.
    """

    def __init__(
        self,
        *,
        least: float,
        past: PastAnswers,
        datastore: Datastore | None = None,
        estimates: Estimates | None = None,
    ) -> None:
        if not 0.0 < least < 1.0:
            raise ValueError(f"least must be between 0 and 1, got {least}")
        self._least, self._past, self._datastore = least, past, datastore
        known = estimates or Estimates()
        self._own, self._others, self._predicted, self._stored = (
            {greedy: Calibration(before, odds, known, name, greedy) for greedy in (False, True)}
            for name, before, odds in SOURCES
        )
        self._trust = known.of("trust", weight=10.0, memory=150.0)
        self._texts: dict[Hashable, _Text] = {}
        self._left = sys.maxsize
        """Tokens that this step may still index. Before the first step no sequence waits."""

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
