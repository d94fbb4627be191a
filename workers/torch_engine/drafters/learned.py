"""Learned drafters of the adaptive method: their trees, and what was accepted of their drafts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workers.batch_schedule import schedule_of
from workers.drafting.expectation import Confidence, Expectation
from workers.portfolio import decodable, method_of
from workers.torch_engine import registry
from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.drafters.head_versions import Versioned
from workers.torch_engine.interfaces import Drafter, Plan, Proposal, Remembering, Tree
from workers.torch_engine.models.kv_pool import TREE_ROOM
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import ROOT, Path

NODES = 16
"""Of the tree `eagle2` that drafters grow, of which what pays is verified."""
WIDEST, READ_TOGETHER = 3, 6
"""Nodes of a level that are extended, of one sequence and of all together: each is a row of the
drafter's next forward."""
AT_ONCE = ("medusa",)
"""Drafters that compute all levels at once, however many nodes there are."""
DEEPER = 2
"""Levels that a drafter may draft beyond those that its method was tuned to."""


@dataclass(eq=False)
class Learned:
    """The drafter of a method, with trees by their width, and what is expected of it.

    As a stop it ends a draft where the next level's expected tokens are below `price`, the tokens
    that its seconds are worth (as AdaEDL, arXiv 2410.18351, and SpecDec++, arXiv 2405.19715, with
    measured seconds in place of a threshold). Tokens are chosen, so any of them may decide. Where
    a sequence has as many nodes as it is `granted`, a node of the next level takes the place of the
    least probable of these, or costs `row_price` tokens.
    """

    expectation: Expectation
    drafter: Drafter
    trees: Mapping[int, Tree]
    confidence: Confidence = field(default_factory=Confidence)
    price: float = 0.0
    row_price: float = 0.0
    granted: Mapping[int, int] = field(default_factory=dict)
    _changes: int = 0

    def __post_init__(self) -> None:
        # Asked in every step and of every sequence; isinstance of a protocol takes 30 µs.
        self._remembering = self.drafter if isinstance(self.drafter, Remembering) else None
        self._versions = self.drafter.versions if isinstance(self.drafter, Versioned) else None

    @property
    def name(self) -> str:
        """The name of its method."""
        return self.expectation.name

    @property
    def ready(self) -> bool:
        """Whether new sequences have a head, most or all of them."""
        return self._versions is None or self._versions.active is not None

    def plan(self, sequences: int) -> Plan:
        """Return the parts that draft for so many sequences."""
        width = max(1, min(WIDEST, READ_TOGETHER // sequences))
        return Plan(self.drafter, self.trees[width], self)

    def follow_exchange(self) -> None:
        """Forget most of what is expected of the drafter, if its head was exchanged."""
        changes = self._versions.changes if self._versions else 0
        if changes != self._changes:
            self._changes = changes
            self.expectation.discount()
            self.confidence.discount()

    def drafts_for(self, sequence: DecodeSequence) -> bool:
        """Return whether it has a head for a sequence."""
        return self._versions is None or self._versions.of(sequence) is not None

    def unread(self, sequence: DecodeSequence) -> int:
        """Return the tokens of a sequence that it reads before it drafts."""
        return self._remembering.unread(sequence) if self._remembering else 0

    def limit(self, sequence: DecodeSequence, batch: int) -> int:  # noqa: ARG002
        """Return the greatest depth."""
        return self.expectation.levels

    def goes_on(self, proposal: Proposal) -> bool:
        """Return whether the frontier's children are worth a level."""
        greedy = proposal.sequence.sampling.temperature == 0.0
        nodes = [
            self.confidence.probability(value, depth, greedy=greedy)
            for value, depth in zip(proposal.values, proposal.depths, strict=True)
        ]
        level = proposal.depths[proposal.frontier[0]] + 1
        reached = sum(nodes[node] for node in proposal.frontier)
        gained = min(1.0, reached) * self.expectation.share(level)
        granted = self.granted.get(proposal.sequence.id, TREE_ROOM)
        if granted <= len(nodes):
            replaced = sorted(nodes, reverse=True)[granted - 1] if granted else 1.0
            gained -= min(replaced, self.row_price)
        return gained > self.price

    def observe(self, proposal: Proposal, path: Path) -> None:
        """Do nothing: `Used.learn` learns from every draft, verified or not."""


@dataclass(eq=False)
class Used:
    """A learned drafter's draft for a sequence in this step."""

    by: Learned
    draft: Proposal

    def probabilities(self) -> list[float]:
        """Return the probability that each node is accepted, none above its parent's."""
        draft, confidence = self.draft, self.by.confidence
        greedy = draft.sequence.sampling.temperature == 0.0
        found = list[float]()
        for value, depth, parent in zip(draft.values, draft.depths, draft.parents, strict=True):
            above = 1.0 if parent == ROOT else found[parent]
            found.append(min(above, confidence.probability(value, depth, greedy=greedy)))
        if found:
            self.by.expectation.drew(found, draft.depths)
        return found

    def learn(self, emitted: Sequence[int]) -> tuple[int, int]:
        """Learn which nodes the target chose, verified or not; return how many levels held, and of
        how many the target's choice is known. emitted: the step's tokens."""
        draft, confidence = self.draft, self.by.confidence
        greedy = draft.sequence.sampling.temperature == 0.0
        accepted, held = list[bool](), 0
        nodes = zip(draft.tokens, draft.parents, draft.depths, draft.values, strict=True)
        for token, parent, depth, value in nodes:
            above = parent == ROOT or accepted[parent]
            known = not above or depth < len(emitted)
            accepted.append(above and known and token == emitted[depth])
            if known:
                confidence.saw(value, depth, greedy=greedy, accepted=accepted[-1])
            held = max(held, depth + 1 if accepted[-1] else 0)
        return held, min(draft.drafted_levels, len(emitted))


def learned_by(name: str, context: BuildContext) -> Learned | None:
    """Return the learned drafter of a method; None where the bundle lacks its part."""
    spec = method_of(name, context.bundle)
    if not decodable(spec, context.bundle):
        return None
    drafter: Drafter = context.drafter(spec.drafter, spec.settings.get("drafter", {}))
    trees = dict[int, Tree]()
    for width in range(1, WIDEST + 1):
        k = WIDEST if spec.drafter in AT_ONCE else width
        trees[width] = registry.build("tree", "eagle2", context, {"nodes": NODES, "k": k})
    levels = schedule_of(spec).gamma(1) + DEEPER
    return Learned(Expectation(name, levels), drafter, trees)
