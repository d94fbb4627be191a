"""Drafters that could not win are not asked at every step."""

from collections.abc import Hashable

from workers.drafting.goodput import Choice

HOPELESS, STEPS = 0.97, 8
"""Where nothing was drafted, and no learned drafter could have brought more than that share of the
tokens a second, none is asked in the next steps: to weigh them would take as long as they win."""
DECIDING = 0.05
"""Share of a forward's seconds that may be spent on weighing them where none is taken; where it
takes longer it is done so much less often, but every STEPS steps."""


class Rest:
    """Of all learned drafters, as long as the sequences are the same."""

    def __init__(self) -> None:
        self._left, self._sequences = 0, tuple[Hashable, ...]()

    def lasts(self, sequences: tuple[Hashable, ...]) -> bool:
        """Whether they rest in this step."""
        self._left = max(0, self._left - 1) if sequences == self._sequences else 0
        return self._left > 0

    def after(self, sequences: tuple[Hashable, ...], choice: Choice, spent: float) -> None:
        """They were offered, and this was chosen, which took so much of a forward's seconds."""
        steps = 0
        if choice.hope < HOPELESS and not any(choice.lengths):
            steps = STEPS
        elif choice.offer is None:
            steps = min(STEPS, round(spent / DECIDING))
        self._left, self._sequences = steps, sequences
