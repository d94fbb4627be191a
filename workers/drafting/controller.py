"""Decides before every step who drafts for which sequences, and learns from what was accepted."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from workers.drafting.expectation import Expectation
from workers.drafting.fading import FadingRatio
from workers.drafting.failures import Failures
from workers.drafting.goodput import Choice, Floats, Offer, choose
from workers.drafting.lookup.look_ups import NOTHING, Continuation, LookUps
from workers.drafting.step_costs import Draft, StepCosts

LOOK_UPS = "suffix"
"""All draft tokens were looked up."""
PREDICTION = "prediction"
"""All draft tokens were those that the client predicted, in a vLLM engine."""
NOBODY = "none"
"""No tokens were drafted."""
GRAMMAR = "grammar"
"""The request's grammar forced all draft tokens."""


EASE_WEIGHT, EASE_MEMORY = 6.0, 40.0
"""Of a sequence's accepted over expected tokens, in expected tokens."""
EASE_IDLE = 0.01
"""Share of it that a step without a learned draft removes."""
PLAIN_EVERY = 128
"""Steps in a row with drafts after which one has none. Otherwise the seconds of few rows would be
unknown, and more and more would be drafted."""
HOPELESS, REST_STEPS = 0.97, 8
"""Where nothing was drafted, and no drafter would have brought that share of the goodput, none is
weighed for some steps while the sequences are the same."""

Missing = Callable[[str], Sequence[int | None] | None]
"""Tokens of each sequence that a drafter must read before it drafts: None for a sequence that it
cannot draft for, or in place of all where it is disabled."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The drafts of a step. found: what was looked up for each sequence. lengths: tokens of each
    that are worth verifying, looked-up ones or, of the sequences `taken`, those of `drafter`.
    level_price: tokens that another level of its drafts must bring to a sequence; row_price: that
    another verified token must bring."""

    found: Sequence[Continuation]
    lengths: Sequence[int]
    taken: Sequence[int] = ()
    drafter: str | None = None
    level_price: float = 0.0
    row_price: float = 0.0


class Controller:
    """Choose the drafter and the tokens that bring the batch the most tokens a second.

    drafters: the learned ones. costs: told by the engine. look_ups: None looks nothing up.
    failures: of look-ups, which then leave the learned drafters alone.
    """

    def __init__(
        self,
        drafters: Sequence[Expectation],
        costs: StepCosts,
        look_ups: LookUps | None,
        failures: Failures,
    ) -> None:
        self.costs, self.look_ups, self._failures = costs, look_ups, failures
        self.drafters: Mapping[str, Expectation] = {one.name: one for one in drafters}
        self._ease: dict[Hashable, FadingRatio] = {}
        self._accepted, self._drafted_steps = 0, 0
        self._chosen: tuple[Expectation, float] | None = None
        self._rest, self._batch = 0, tuple[Hashable, ...]()

    def choose(
        self,
        limits: Mapping[Hashable, int],
        missing: Missing,
        step: Callable[[Floats], Floats],
        other_tokens: float = 0.0,
    ) -> Decision:
        """Return the drafts of sequences, each with room for `limits` tokens.

        step, other_tokens: see goodput.choose.
        """
        self._settle()
        found = self._look_up(limits)
        batch = tuple(limits)
        self._rest = self._rest - 1 if batch == self._batch and self._rest > 0 else 0
        self._batch = batch
        offers, drafters = list[Offer](), list[Expectation]()
        for drafter in () if self._rest else self.drafters.values():
            made = self._offers(drafter, missing)
            offers += made
            drafters += [drafter] * len(made)
        choice = choose([one.probabilities for one in found], offers, step, other_tokens)
        if offers and choice.best_offer < HOPELESS and not any(choice.lengths):
            self._rest = REST_STEPS
        if self._plain_is_due(choice):
            choice = replace(choice, lengths=[0] * len(found), offer=None)
        chosen = None if choice.offer is None else drafters[choice.offer]
        for one in self.drafters.values():
            if one is not chosen:
                one.idle()
                self.costs.idle(one.name)
        if chosen is None:
            return Decision(found, choice.lengths)
        self._chosen = chosen, choice.expected
        price = choice.goodput * self._level_seconds(chosen.name, len(choice.taken))
        price /= len(choice.taken)
        rows = len(found) + sum(choice.lengths)
        fewer, more = step(np.array([rows, rows + 1.0]))
        row = choice.goodput * float(more - fewer)
        return Decision(found, choice.lengths, choice.taken, chosen.name, price, row)

    def learn(
        self,
        sequence: Hashable,
        tokens: Sequence[int],
        verified: int,
        draft: tuple[str, int, int] | None = None,
    ) -> None:
        """Learn from a sequence's step.

        tokens: emitted ones, all but the last accepted drafts. verified: how many looked-up tokens
        were verified, where no other drafter's were. draft: a learned drafter, how many levels of
        its draft were accepted, and of how many the target's choice is known.
        """
        self._accepted += len(tokens) - 1
        if self.look_ups is not None:
            self.look_ups.learn(sequence, tokens, verified)
        if draft is not None and draft[2]:
            name, held, known = draft
            ratio = FadingRatio(weight=EASE_WEIGHT, memory=EASE_MEMORY)
            self._ease.setdefault(sequence, ratio).saw(held, self.drafters[name].saw(held, known))
        elif sequence in self._ease:
            self._ease[sequence].fade(EASE_IDLE)

    def undrafted(self) -> None:
        """Note that the chosen drafter drafted nothing."""
        self._chosen, self._rest = None, 0

    def forget(self, sequence: Hashable) -> None:
        """Forget a sequence."""
        self._ease.pop(sequence, None)
        if self.look_ups is not None:
            self.look_ups.end(sequence)

    def _settle(self) -> None:
        """Compare what was accepted with what the last choice expected."""
        if self._chosen is not None:
            drafter, expected = self._chosen
            drafter.settled(self._accepted, expected)
        self._chosen, self._accepted = None, 0

    def _look_up(self, limits: Mapping[Hashable, int]) -> list[Continuation]:
        nothing = [NOTHING] * len(limits)
        if self.look_ups is None or (self.drafters and self._failures.rests(LOOK_UPS)):
            return nothing
        try:
            self.look_ups.step()
            found = [self.look_ups.look_up(*sequence) for sequence in limits.items()]
        except Exception as error:
            if not self.drafters:
                raise
            self._failures.failed(LOOK_UPS, error)
            return nothing
        self._failures.drafted(LOOK_UPS)
        return found

    def _offers(self, drafter: Expectation, missing: Missing) -> list[Offer]:
        unread = missing(drafter.name)
        if unread is None:
            return []
        eases = [self._ease[one].value if one in self._ease else 1.0 for one in self._batch]
        can = np.array([tokens is not None for tokens in unread])
        work = Draft.of(0, [tokens or 0 for tokens in unread])
        return [
            Offer(
                probabilities * can[:, None],
                partial(self._seconds, drafter.name, replace(work, levels=levels)),
            )
            for levels, probabilities in drafter.offers(eases)
        ]

    def _seconds(self, drafter: str, work: Draft, sequences: int) -> float:
        return self.costs.drafting(drafter, work.part(sequences))

    def _level_seconds(self, drafter: str, sequences: int) -> float:
        """Return the expected seconds of one more level."""
        one, two = (self.costs.drafting(drafter, Draft(n, sequences)) for n in (1, 2))
        return two - one

    def _plain_is_due(self, choice: Choice) -> bool:
        drafts = choice.offer is not None or any(choice.lengths)
        self._drafted_steps = self._drafted_steps + 1 if drafts and self.drafters else 0
        if self._drafted_steps <= PLAIN_EVERY:
            return False
        self._drafted_steps = 0
        return True
