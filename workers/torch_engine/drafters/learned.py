"""Learned drafters of the adaptive method: their trees, and what was accepted of their drafts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workers.drafting.acceptance import Acceptance, routed_shares
from workers.drafting.controller import Decision
from workers.drafting.estimates import Estimates
from workers.portfolio import decodable, method_of
from workers.torch_engine import registry
from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.interfaces import Drafter, Plan, Proposal, Tree
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import ROOT

NODES = 16
"""Of the tree `eagle2` that drafters grow, of which what pays is verified."""
WIDEST, READ_TOGETHER = 3, 6
"""Nodes of a level that are extended, of one sequence and of all together: each is a row of the
drafter's next forward."""
DEEPER = 2
"""Levels that a drafter may draft beyond those that its method was tuned to."""


@dataclass(eq=False)
class Learned:
    """The drafter of a method, with trees by their width, and what is accepted of its drafts.

    As a stop it ends a tree where the next level's expected tokens are below `price` (as AdaEDL,
    arXiv 2410.18351, and SpecDec++, arXiv 2405.19715, with measured seconds in place of a
    threshold). Tokens are chosen, so any of them may decide.
    """

    acceptance: Acceptance
    drafter: Drafter
    trees: Mapping[int, Tree]
    price: float = 0.0
    shares: Sequence[float] = ()
    _changes: int = 0

    def plan(self, decision: Decision) -> Plan:
        """Return the parts that draft for a decision."""
        self.price = decision.price
        self.shares = self.acceptance.shares(decision.place.traffic)
        width = max(1, min(WIDEST, READ_TOGETHER // len(decision.taken)))
        return Plan(self.drafter, self.trees[width if decision.arm.tree else 1], self)

    def exchanged(self) -> bool:
        """Return whether its head was exchanged since the last call."""
        before = self._changes
        self._changes = self.drafter.versions.changes if self.drafter.versions else 0
        return self._changes != before

    def missing(self, sequence: DecodeSequence) -> int | None:
        """Return the tokens of a sequence that it must read before it drafts; None where it has no
        head for it."""
        versions = self.drafter.versions
        if versions is not None and versions.of(sequence) is None:
            return None
        return self.drafter.unread(sequence)

    @property
    def limit(self) -> int:
        """The greatest depth."""
        return self.acceptance.levels

    def goes_on(self, proposal: Proposal) -> bool:
        """Return whether the frontier's children are worth a level."""
        values = [proposal.values[node] for node in proposal.frontier]
        depth, greedy = proposal.depths[proposal.frontier[0]], _greedy(proposal)
        reached = sum(self.acceptance.probability(one, depth, greedy=greedy) for one in values)
        return min(1.0, reached) * self.shares[min(depth + 1, len(self.shares) - 1)] > self.price

    def probabilities(self, draft: Proposal) -> list[float]:
        """Return the probability that each node is accepted, none above its parent's."""
        greedy, found = _greedy(draft), list[float]()
        for value, depth, parent in zip(draft.values, draft.depths, draft.parents, strict=True):
            own = self.acceptance.probability(value, depth, greedy=greedy)
            found.append(own if parent == ROOT else min(own, found[parent]))
        return found

    def learn(self, draft: Proposal, emitted: Sequence[int]) -> tuple[int, int]:
        """Learn which nodes the target chose, verified or not; return how many levels held, and of
        how many the target's choice is known. emitted: the step's tokens."""
        greedy, accepted, held = _greedy(draft), list[bool](), 0
        nodes = zip(draft.tokens, draft.parents, draft.depths, draft.values, strict=True)
        for token, parent, depth, value in nodes:
            above = parent == ROOT or accepted[parent]
            known = not above or depth < len(emitted)
            accepted.append(above and known and token == emitted[depth])
            if known:
                self.acceptance.saw_token(value, depth, greedy=greedy, accepted=accepted[-1])
            held = max(held, depth + 1 if accepted[-1] else 0)
        return held, min(draft.drafted_levels, len(emitted))


def _greedy(proposal: Proposal) -> bool:
    return proposal.sequence.sampling.temperature == 0.0


def learned_by(name: str, context: BuildContext, estimates: Estimates) -> Learned | None:
    """Return the learned drafter of a method; None where the bundle lacks its part."""
    spec = method_of(name, context.bundle)
    if not decodable(spec, context.bundle):
        return None
    drafter: Drafter = context.drafter(spec.drafter, spec.settings.get("drafter", {}))
    trees = dict[int, Tree]()
    for width in range(1, WIDEST + 1):
        trees[width] = registry.build("tree", "eagle2", context, {"nodes": NODES, "k": width})
    stop = registry.build("stop", spec.stop, context, spec.settings.get("stop", {}))
    levels: int = stop.limit
    usual = routed_shares(context.bundle.path / "routing", name, levels)
    return Learned(Acceptance(name, levels + DEEPER, usual, estimates), drafter, trees)
