"""A learned drafter among several that may draft, and what came of its drafts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workers.batch_schedule import schedule_of
from workers.drafting.arm import Arm
from workers.drafting.confidence import Confidence
from workers.drafting.ease import Ease
from workers.portfolio import decodable, method_of
from workers.torch_engine import registry
from workers.torch_engine.drafters.paying import Paying
from workers.torch_engine.materials import Materials
from workers.torch_engine.parts import Drafter, Plan, Proposal, Remembering, Tree
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import ROOT, Path

NODES = 16
"""Of the tree `eagle2` that learned drafters grow, of which what pays is verified."""
WIDEST, READ_TOGETHER = 3, 6
"""Nodes of a level that are extended, of one sequence and of all together, at most: each is a row
of the drafter's next forward, and what one sequence has for nothing a batch pays for."""
AT_ONCE = ("medusa",)
"""Drafters that say all levels at once, however many nodes there are."""
DEEPER = 2
"""Levels that a drafter may draft beyond those that its method was tuned to."""
MERGED, EXPECTED = 0.4, 10.0
"""Share of foretold tokens that come beside a learned drafter's, at first; in tokens that were
expected, what that weighs."""
MEMORY = 200.0
"""Expected tokens after which earlier ones weigh less in that share."""


@dataclass(eq=False)
class Learned:
    """The drafter of a method, with trees by their width, and what is expected of it.

    ease: of its confidence, by sequence.
    """

    arm: Arm
    drafter: Drafter
    trees: Mapping[int, Tree]
    confidence: Confidence = field(default_factory=Confidence)
    ease: Ease = field(default_factory=Ease)
    _merged: tuple[float, float] = (MERGED * EXPECTED, EXPECTED)

    def __post_init__(self) -> None:
        self.stop = Paying(self.confidence, self.ease)

    def plan(self, sequences: int) -> Plan:
        """The parts that draft for so many sequences."""
        width = max(1, min(WIDEST, READ_TOGETHER // sequences))
        return Plan(self.drafter, self.trees[width], self.stop)

    @property
    def merged(self) -> float:
        """The share of foretold tokens that come beside its own, where both are verified."""
        return self._merged[0] / self._merged[1]

    def unread(self, sequences: Sequence[DecodeSequence]) -> list[int]:
        """Tokens of each that it reads before it drafts."""
        if not isinstance(self.drafter, Remembering):
            return [0] * len(sequences)
        return [self.drafter.unread(one) for one in sequences]

    def forget(self, sequence: DecodeSequence) -> None:
        """The sequence has ended."""
        self.arm.forget(sequence)
        self.ease.forget(sequence.id)

    def learn_merged(self, came: float, expected: float) -> None:
        """So many came of the foretold tokens only, where so many were expected."""
        keep = 1.0 - expected / MEMORY if self._merged[1] > MEMORY else 1.0
        self._merged = self._merged[0] * keep + came, self._merged[1] * keep + expected


@dataclass(eq=False)
class Used:
    """What a learned drafter drafted for a sequence in this step, and how much was asked of it.

    foretold: tokens that were expected of what is foretold alone. cached: the nodes that it has
    read, as the tree that is verified numbers them.
    """

    by: Learned
    draft: Proposal
    levels: int
    foretold: float
    cached: list[int] = field(default_factory=list)

    def survival(self) -> list[float]:
        """Of its nodes the probabilities that they come, none above its parent's."""
        draft, confidence = self.draft, self.by.confidence
        greedy = draft.sequence.sampling.temperature == 0.0
        ease = self.by.ease.of(draft.sequence.id)
        found = list[float]()
        for value, depth, parent in zip(draft.values, draft.depths, draft.parents, strict=True):
            above = 1.0 if parent == ROOT else found[parent]
            found.append(min(above, ease * confidence.survival(value, depth, greedy=greedy)))
        self.by.arm.drew(found, draft.depths)
        return found

    def learn(self, proposal: Proposal, path: Path) -> tuple[float, float]:
        """What of it came, verified or not, as far as the target's tokens tell. How many levels
        did, and how many were expected to."""
        sequence, draft = proposal.sequence, self.draft
        if not draft.tokens:
            return 0.0, 0.0  # it only read what it had missed
        emitted = [*(proposal.tokens[node] for node in path.nodes), path.bonus]
        greedy = sequence.sampling.temperature == 0.0
        came, held, expected = list[bool | None](), 0, 0.0
        nodes = zip(draft.tokens, draft.parents, draft.depths, draft.values, strict=True)
        for token, parent, depth, value in nodes:
            above = parent == ROOT or came[parent]
            if above and depth == len(emitted):
                above = None  # what the target would have chosen here is not known
            came.append(above and token == emitted[depth])
            if above is not None:
                expected += self.by.confidence.survival(value, depth, greedy=greedy)
                self.by.confidence.saw(value, depth, greedy=greedy, came=bool(came[-1]))
            held = max(held, depth + 1 if came[-1] else 0)
        drawn = min(draft.drafted_levels, len(emitted))
        self.by.stop.saw([depth < held for depth in range(min(drawn, held + 1))])
        self.by.ease.saw(sequence.id, held, expected)
        self.by.learn_merged(max(0, len(path.nodes) - held), self.foretold)
        return self.by.arm.saw(sequence, held, min(self.levels, len(emitted)))


def learned_by(name: str, materials: Materials) -> Learned | None:
    """The drafter of a method; None where the bundle has no such part."""
    spec = method_of(name, materials.bundle)
    if not decodable(spec, materials.bundle):
        return None
    drafter: Drafter = materials.drafter(spec.drafter, spec.settings.get("drafter", {}))
    trees = dict[int, Tree]()
    for width in range(1, WIDEST + 1):
        k = WIDEST if spec.drafter in AT_ONCE else width
        trees[width] = registry.build("tree", "eagle2", materials, {"nodes": NODES, "k": k})
    tuned = schedule_of(spec).gamma(1)
    return Learned(Arm(name, tuned + DEEPER, tuned=tuned), drafter, trees)
