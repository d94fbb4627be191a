"""Copies what followed the last tokens when they occurred before."""

import math
from collections.abc import Callable, Sequence

from workers.drafting.goodput import choose
from workers.drafting.lookup.continuation import Continuation
from workers.drafting.lookup.foreteller import Foreteller
from workers.drafting.lookup.past import PAST_BYTES, PastAnswers
from workers.drafting.names import LOOK_UPS
from workers.drafting.step_costs import Floats, StepCosts
from workers.torch_engine.materials import Materials
from workers.torch_engine.parts import Proposal
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tree import Path


@register("drafter", "suffix")
class Suffix:
    """What a `Foreteller` foretells of each sequence, as far as that pays for the whole batch: as
    much as brings the most tokens a second, by what steps have cost here. On SmolLM2's answers a
    third of the matches of one token go on as before, so that these count as well.

    past_bytes: of the engine's past answers, whichever methods gave them; with 0 it looks at the
    request alone. Its tokens are chosen, not sampled. Raises ValueError naming a setting that
    cannot be.
    """

    captures: frozenset[int] = frozenset()
    has_distribution = False

    def __init__(
        self, materials: Materials, *, least: float = 0.1, past_bytes: int = PAST_BYTES
    ) -> None:
        self._costs = materials.costs
        self._costs.wanted = True
        try:
            materials.past.want(past_bytes)
            past = materials.past if past_bytes else PastAnswers()
            self._foreteller = Foreteller(least=least, past=past)
        except ValueError as error:
            raise ValueError(f"drafter 'suffix': {error}") from error

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Up to `limit` tokens each."""
        foretold = self.foretold(proposals)
        lengths = worthwhile(proposals, [known.survival for known in foretold], self._costs)
        for proposal, known, length in zip(proposals, foretold, lengths, strict=True):
            self.draft(proposal, known, length)

    @staticmethod
    def draft(proposal: Proposal, foretold: Continuation, length: int) -> None:
        """The first so many of the foretold tokens."""
        for token, sure in zip(foretold.tokens[:length], foretold.survival, strict=False):
            proposal.add(token, len(proposal) - 1, value=math.log(sure))

    def foretold(self, proposals: Sequence[Proposal]) -> list[Continuation]:
        """Return what may come next in each of a step's sequences, as far as each one's limit."""
        self._foreteller.step()
        return [self.foretell(p.sequence, p.limit) for p in proposals]

    @property
    def bytes(self) -> int:
        """That the indexes of its sequences take at most."""
        return self._foreteller.bytes

    def foretell(self, sequence: DecodeSequence, limit: int) -> Continuation:
        """Up to `limit` tokens that may come next. What comes is learned from, whether they are
        drafted or not."""
        self._begin(sequence)
        return self._foreteller.foretell(sequence.id, limit)

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:  # noqa: ARG002
        """Learn which foretold tokens came."""
        self._begin(proposal.sequence)
        emitted = [*(proposal.tokens[node] for node in path.nodes), path.bonus]
        alone = proposal.drafter in (None, LOOK_UPS)
        self._foreteller.came(proposal.sequence.id, emitted, len(proposal) if alone else 0)

    def release(self, sequence: DecodeSequence) -> None:
        """Drop the sequence's index."""
        self._foreteller.end(sequence.id)

    def _begin(self, sequence: DecodeSequence) -> None:
        scope, greedy = sequence.request.scope, sequence.sampling.temperature == 0.0
        self._foreteller.begin(sequence.id, sequence.tokens, scope, greedy=greedy)


def worthwhile(
    proposals: Sequence[Proposal],
    survival: Sequence[Sequence[float]],
    costs: StepCosts,
    spent: float = 0.0,
) -> list[int]:
    """How many draft tokens of each sequence bring the whole batch the most tokens a second.

    survival: by sequence, the probabilities that its tokens come, falling. spent: seconds that
    drafting took. All of them where nobody knows what steps cost.
    """
    if not proposals or not costs.step.known:
        return [len(sure) for sure in survival]
    seconds = seconds_of(proposals, costs)
    return choose(survival, (), lambda rows: seconds(rows) + spent, proposals[0].beside).lengths


def seconds_of(proposals: Sequence[Proposal], costs: StepCosts) -> Callable[[Floats], Floats]:
    """Seconds of a step that verifies so many rows of these proposals, those of other methods
    beside them, which are taken to be as long and to draft nothing."""
    count, beside = len(proposals), proposals[0].beside
    context = sum(len(proposal.sequence.tokens) for proposal in proposals)
    everybody = count + beside
    return lambda rows: costs.step.of(rows + beside, everybody, context * everybody // count)
