"""Every step the drafter that pays, for every sequence: look-ups first, a learned one where more is
expected of it, and of what both say as much as pays."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from schemas.method import Setting
from workers.batch_schedule import schedule_of
from workers.bundle import BundleError
from workers.drafting.arm import Arm
from workers.drafting.confidence import Confidence
from workers.drafting.goodput import Choice, Offer, choose
from workers.drafting.lookup.continuation import NOTHING, Continuation
from workers.portfolio import method_of, part_of
from workers.torch_engine import registry
from workers.torch_engine.drafters.suffix import Suffix, worthwhile
from workers.torch_engine.growth import CATCH_UP
from workers.torch_engine.materials import Materials
from workers.torch_engine.models.kv_pool import TREE_ROOM, Lease
from workers.torch_engine.parts import Drafter, Plan, Proposal, Resuming
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tree import ROOT, Path

NOBODY = "none"
"""In the statistics by drafter: nothing was drafted."""
WIDE: dict[str, Setting] = {"nodes": 16, "k": 3}
"""Of the tree `eagle2` that learned drafters grow, of which what pays is verified."""
MERGED, EXPECTED = 0.4, 10.0
"""Share of foretold tokens that come beside a learned drafter's, at first; in tokens that were
expected, what that weighs."""
MEMORY = 200.0
"""Expected tokens after which earlier ones weigh less in that share."""
LATE = 0.25
"""Share of sequences of which a drafter may have missed much in a draft that is timed: in large
batches there is always one."""
DEEPER = 2
"""Levels that a drafter may draft beyond those that its method was tuned to."""


@dataclass(eq=False)
class _Learned:
    """A learned drafter that may draft.

    reached: by sequence the tokens that there were when it last drafted. merged: foretold tokens
    that came beside its own, and those that were expected of the foretold ones alone.
    """

    arm: Arm
    plan: Plan
    confidence: Confidence = field(default_factory=Confidence)
    reached: dict[int, int] = field(default_factory=dict)
    merged: list[float] = field(default_factory=lambda: [MERGED * EXPECTED, EXPECTED])

    def learn_merged(self, came: float, expected: float) -> None:
        """So many came of the foretold tokens only, where so many were expected."""
        keep = 1.0 - expected / MEMORY if self.merged[1] > MEMORY else 1.0
        self.merged[:] = self.merged[0] * keep + came, self.merged[1] * keep + expected

    def follows(self, sequence: DecodeSequence) -> bool:
        """Whether it has little to read of what came while it sat out."""
        return len(sequence.tokens) - self.reached.get(sequence.id, 0) < CATCH_UP


@dataclass(eq=False)
class _Used:
    """What a learned drafter drafted for a sequence in this step, and how much was asked of it.

    foretold: tokens that were expected of what is foretold alone. cached: the nodes that it has
    read, as the tree that is verified numbers them.
    """

    by: _Learned
    draft: Proposal
    levels: int
    foretold: float
    cached: list[int] = field(default_factory=list)


@register("drafter", "adaptive")
class Adaptive:
    """Grants draft tokens where they bring the whole batch the most tokens a second.

    Every step each sequence has what the suffix drafter foretells, with the probability of each
    token, which costs next to nothing; and each learned drafter (of `learned`, methods, those whose
    parts the bundle has) expects as many accepted tokens as it lately had there, by levels. Who
    drafts, for whom and how deep is the choice of the highest expected tokens over expected seconds
    (goodput, as in TurboSpec, arXiv 2406.14066, for several drafters), by what steps have cost
    here. A learned drafter grows a wide tree; foretold tokens are merged into it; every node has a
    probability then, and what is verified is chosen once more, node by node.

    look_ups: False drafts with the learned ones alone; with a single one it is its length that is
    decided. priors: whether what the router expects of a prompt's cluster counts. Raises
    BundleError where nobody is left to draft.

    All tokens are chosen, not sampled.
    """

    has_distribution = False

    def __init__(
        self,
        materials: Materials,
        *,
        learned: str = "medusa,eagle3",
        least: float = 0.02,
        past_tokens: int = 50_000,
        look_ups: bool = True,
        priors: bool = True,
    ) -> None:
        self._costs = materials.costs
        self._costs.wanted = True
        settings: dict[str, Setting] = {"least": least, "past_tokens": past_tokens}
        suffix = materials.drafter("suffix", settings)
        assert isinstance(suffix, Suffix)
        self._suffix, self._look_ups = suffix, look_ups
        self._learned = [
            one for name in learned.split(",") if (one := _learned(name, materials, priors))
        ]
        if not self._learned and not look_ups:
            raise BundleError(f"bundle {materials.bundle.name} has no part {learned!r} drafts with")
        self._offered = [
            (one, levels) for one in self._learned for levels in range(1, one.arm.levels + 1)
        ]
        self.captures = frozenset[int]().union(
            *(one.plan.drafter.captures for one in self._learned)
        )
        self._used: dict[int, _Used] = {}

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Look up, decide who drafts, let it draft, and keep what pays."""
        self._used.clear()
        if not proposals:
            return
        foretold = [
            self._suffix.foretell(p.sequence, p.limit) if self._look_ups else NOTHING
            for p in proposals
        ]
        choice = self._choice(proposals, [known.survival for known in foretold])
        spent = 0.0
        if choice.offer is not None:
            one, levels = self._offered[choice.offer]
            known = [choice.known[index] for index in choice.taken]
            spent = self._draft(one, levels, [proposals[index] for index in choice.taken], known)
        survival = [
            self._merge(proposal, known)
            for proposal, known in zip(proposals, foretold, strict=True)
        ]
        self._keep(proposals, survival, spent)

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:
        """Every drafter moves on, those that sat out as well."""
        sequence = proposal.sequence
        if sequence.output_tokens and proposal.drafter is None:
            proposal.drafter = NOBODY  # the last token: nothing was to be drafted
        used = self._used.pop(sequence.id, None)
        for one in self._learned:
            mine = used if used is not None and used.by is one else None
            proposal.cached = mine.cached if mine else []
            one.plan.drafter.commit(proposal, path, output)
            if mine:
                _learn(mine, proposal, path)
            else:
                one.arm.sat_out(sequence)
        if self._look_ups:
            self._suffix.commit(proposal, path, output)

    def begin(self, lease: Lease, source: Lease, length: int) -> int:
        """As far as all learned drafters can."""
        drafters = [one.plan.drafter for one in self._learned]
        found = [d.begin(lease, source, length) for d in drafters if isinstance(d, Resuming)]
        return min(found, default=length)

    def release(self, sequence: DecodeSequence) -> None:
        """The drafters are released by themselves."""
        self._used.pop(sequence.id, None)
        for one in self._learned:
            one.arm.forget(sequence)
            one.reached.pop(sequence.id, None)

    def _choice(self, proposals: Sequence[Proposal], survival: Sequence[Sequence[float]]) -> Choice:
        """Who drafts, for whom, how deep."""
        sequences, beside = [p.sequence for p in proposals], proposals[0].beside
        context = sum(len(sequence.tokens) for sequence in sequences)
        offers = list[Offer]()
        for one in self._learned:
            by_levels = zip(*(one.arm.expected(sequence) for sequence in sequences), strict=True)
            for levels, expected in enumerate(by_levels, start=1):
                seconds = partial(self._costs.drafting, one.arm.name, levels)
                merged = one.merged[0] / one.merged[1]
                offers.append(Offer(expected, one.arm.nodes(levels), seconds, merged))
        return choose(
            survival, offers, lambda rows: self._costs.step(rows + beside, context), beside
        )

    def _draft(
        self, one: _Learned, levels: int, proposals: Sequence[Proposal], known: Sequence[float]
    ) -> float:
        """Seconds that it took. known: what is expected of the foretold tokens alone."""
        drafts = [
            Proposal(sequence=p.sequence, plan=one.plan, limit=min(p.limit, levels))
            for p in proposals
        ]
        clock = time.perf_counter()
        one.plan.drafter.propose(drafts)
        seconds = time.perf_counter() - clock
        late = sum(not one.follows(proposal.sequence) for proposal in proposals)
        if late <= LATE * len(proposals):
            self._costs.saw_drafting(one.arm.name, levels, len(drafts), seconds)
        for proposal, draft, foretold in zip(proposals, drafts, known, strict=True):
            one.reached[proposal.sequence.id] = len(proposal.sequence.tokens)
            limit = min(proposal.limit, levels)
            self._used[proposal.sequence.id] = _Used(one, draft, limit, foretold)
        return seconds

    def _merge(self, proposal: Proposal, foretold: Continuation) -> list[float]:
        """Fill a proposal with the draft there is for it and what is foretold. Of its nodes the
        probabilities that they come, none above its parent's."""
        survival = list[float]()
        used = self._used.get(proposal.sequence.id)
        if used is not None:
            greedy = proposal.sequence.sampling.temperature == 0.0
            draft, confidence = used.draft, used.by.confidence
            for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
                sure = confidence.survival(draft.values[node], draft.depths[node], greedy=greedy)
                survival.append(min(sure, survival[parent] if parent != ROOT else 1.0))
                proposal.add(token, parent)
            proposal.cached = list(draft.cached)
        at = ROOT
        for token, sure in zip(foretold.tokens, foretold.survival, strict=True):
            same = [child for child in proposal.children(at) if proposal.tokens[child] == token]
            if same:
                at = same[0]
                survival[at] = max(survival[at], sure)
            else:
                at = proposal.add(token, at)
                survival.append(sure)
        return survival

    def _keep(
        self, proposals: Sequence[Proposal], survival: Sequence[Sequence[float]], spent: float
    ) -> None:
        """Of all nodes those that bring the most tokens a second, when drafting took so long."""
        best = [_best(sure) for sure in survival]
        falling = [[sure[i] for i in nodes] for sure, nodes in zip(survival, best, strict=True)]
        granted = worthwhile(proposals, falling, self._costs, spent)
        for proposal, nodes, length in zip(proposals, best, granted, strict=True):
            if length < len(proposal):
                proposal.keep(sorted(nodes[:length]))
            used = self._used.get(proposal.sequence.id)
            if used is not None:
                used.cached = proposal.cached
                proposal.drafter = used.by.arm.name
            else:
                proposal.drafter = "suffix" if length else NOBODY


def _best(survival: Sequence[float]) -> list[int]:
    """The likeliest nodes that a step has room for; of equals the shallower."""
    return sorted(range(len(survival)), key=lambda node: -survival[node])[:TREE_ROOM]


def _learn(used: _Used, proposal: Proposal, path: Path) -> None:
    """What of a draft came, verified or not, as far as the target's tokens tell."""
    sequence, draft = proposal.sequence, used.draft
    emitted = [*(proposal.tokens[node] for node in path.nodes), path.bonus]
    greedy = sequence.sampling.temperature == 0.0
    came, held = list[bool | None](), 0
    for node, (token, parent, depth) in enumerate(
        zip(draft.tokens, draft.parents, draft.depths, strict=True)
    ):
        above = parent == ROOT or came[parent]
        if above and depth == len(emitted):
            above = None  # what the target would have chosen here is not known
        came.append(above and token == emitted[depth])
        if above is not None:
            used.by.confidence.saw(draft.values[node], depth, greedy=greedy, came=bool(came[node]))
        held = max(held, depth + 1 if came[node] else 0)
    known = min(used.levels, len(emitted))
    accepted = min(held, len(path.nodes))
    used.by.arm.saw(sequence, held, known, used.levels, nodes=len(proposal), accepted=accepted)
    used.by.learn_merged(max(0, len(path.nodes) - held), used.foretold)


def _learned(name: str, materials: Materials, priors: bool) -> _Learned | None:
    """None where the bundle has no such part."""
    spec = method_of(name, materials.bundle)
    part = part_of(spec)
    if part is not None and not materials.bundle.has(part):
        return None
    settings = spec.settings
    drafter: Drafter = materials.drafter(spec.drafter, settings.get("drafter", {}))
    stop = registry.build("stop", spec.stop, materials, settings.get("stop", {}))
    tree = registry.build("tree", "eagle2", materials, WIDE)
    tuned = schedule_of(spec).gamma(1)
    return _Learned(
        Arm(name, tuned + DEEPER, priors=priors, tuned=tuned), Plan(drafter, tree, stop)
    )
