"""The stop of a learned drafter among several: a level more where it brings more than it costs."""

from collections.abc import Hashable, Sequence

from workers.drafting.confidence import Confidence
from workers.drafting.ease import Ease
from workers.torch_engine.parts import Proposal
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import Path

AT_FIRST, WEIGHT = 0.6, 10.0
"""Share of levels that hold below one that came, before any was seen; in levels, what that
weighs."""
MEMORY = 300.0
"""Levels after which earlier ones weigh less."""
DEPTHS = 16
"""Levels that are told apart."""


class Paying:
    """Drafts a level more where the nodes that it would extend come with so much probability that
    their children are worth the level's seconds (as AdaEDL, arXiv 2410.18351, and SpecDec++, arXiv
    2405.19715, stop by what the drafter says, with measured seconds in the place of a threshold).

    price: tokens that a level must bring. Tokens are chosen, so that any of them may decide.
    """

    def __init__(self, confidence: Confidence, ease: Ease) -> None:
        self.price = 0.0
        self._confidence, self._ease = confidence, ease
        self._held = [AT_FIRST * WEIGHT] * DEPTHS
        self._seen = [WEIGHT] * DEPTHS

    def limit(self, sequence: DecodeSequence, batch: int) -> int:  # noqa: ARG002
        """As deep as may be: who drafts says how deep."""
        return DEPTHS

    def goes_on(self, proposal: Proposal) -> bool:
        """Whether the children of the frontier are worth a level."""
        sequence, depth = proposal.sequence, proposal.depths[proposal.frontier[0]]
        values = [proposal.values[node] for node in proposal.frontier]
        return self.pays(sequence.id, values, depth, greedy=sequence.sampling.temperature == 0.0)

    def pays(
        self, sequence: Hashable, values: Sequence[float], depth: int, *, greedy: bool
    ) -> bool:
        """The same of nodes at a depth, by the sum of log-probabilities along each one's path."""
        sure = sum(self._confidence.survival(value, depth, greedy=greedy) for value in values)
        sure = min(1.0, sure * self._ease.of(sequence))
        below = min(depth + 1, DEPTHS - 1)
        return sure * self._held[below] / self._seen[below] > self.price

    def observe(self, proposal: Proposal, path: Path) -> None:
        """Drafts are learned from where they were made, verified or not."""

    def saw(self, held: Sequence[bool]) -> None:
        """Of a draft's levels, each below one that held, which held."""
        for depth, one in enumerate(held[:DEPTHS]):
            keep = 1.0 - 1.0 / MEMORY if self._seen[depth] > MEMORY else 1.0
            self._held[depth] = keep * self._held[depth] + one
            self._seen[depth] = keep * self._seen[depth] + 1.0
