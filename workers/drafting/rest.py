"""Learned drafters are not weighed at every step."""

from collections.abc import Hashable
from dataclasses import replace

from workers.drafting.goodput import Choice

HOPELESS, STEPS = 0.97, 8
"""Where nothing was drafted, and no learned drafter could have brought more than that share of the
tokens a second, none is asked in the next steps: to weigh them would take as long as they win."""
DECIDING = 0.05
"""Share of a forward's seconds that may be spent on weighing them; where it takes longer it is done
so much less often, but every STEPS steps."""


class Rest:
    """Of all learned drafters, or of the choice among them, while the sequences are the same."""

    def __init__(self) -> None:
        self._left, self._sequences = 0, tuple[Hashable, ...]()
        self._chosen: Choice | None = None

    def lasts(self, sequences: tuple[Hashable, ...]) -> bool:
        """Whether they rest in this step."""
        self._left = max(0, self._left - 1) if sequences == self._sequences else 0
        return self._left > 0

    def after(self, sequences: tuple[Hashable, ...], choice: Choice, spent: float) -> None:
        """They were offered, and this was chosen, which took so much of a forward's seconds."""
        self._left, self._sequences = min(STEPS, round(spent / DECIDING)), sequences
        if choice.hope < HOPELESS and not any(choice.lengths):
            self._left = STEPS
        self._chosen = choice

    def goes_on(self, without: Choice) -> Choice:
        """What is chosen while they rest: the drafter that was taken drafts for the same sequences
        again. without: the choice where none does."""
        if self._chosen is None or self._chosen.offer is None:
            return without
        last = self._chosen
        return replace(without, offer=last.offer, taken=last.taken, goodput=last.goodput)
