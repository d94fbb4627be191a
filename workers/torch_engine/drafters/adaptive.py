"""Every step the drafter that pays, for every sequence: look-ups first, a learned one where more is
expected of it, and of what both say as much as pays."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from schemas.method import Setting
from workers.bundle import BundleError
from workers.drafting.arm import Arm
from workers.drafting.backlog import Backlog
from workers.drafting.draft_seconds import Draft
from workers.drafting.goodput import Choice, Offer, choose
from workers.drafting.lookup.continuation import NOTHING, Continuation
from workers.drafting.lookup.past import PAST_BYTES
from workers.drafting.names import LOOK_UPS, NOBODY
from workers.drafting.plain_steps import PlainSteps
from workers.drafting.rest import Rest
from workers.torch_engine.drafters.learned import Learned, Used, learned_by
from workers.torch_engine.drafters.suffix import Suffix, seconds_of, worthwhile
from workers.torch_engine.materials import Materials
from workers.torch_engine.models.kv_pool import TREE_ROOM, Lease
from workers.torch_engine.parts import Proposal
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tree import ROOT, Path

FIRST_OR_ALL = range(2)
"""What is offered of each learned drafter; how many levels it drafts, its stop says."""


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
    decided. Raises BundleError where nobody is left to draft, ValueError where nobody was named.

    All tokens are chosen, not sampled.
    """

    has_distribution = False

    def __init__(
        self,
        materials: Materials,
        *,
        learned: str = "medusa,eagle3",
        least: float = 0.02,
        past_bytes: int = PAST_BYTES,
        look_ups: bool = True,
    ) -> None:
        self._costs, self._guard = materials.costs, materials.guard
        self._costs.wanted = True
        self._suffix: Suffix | None = None
        if look_ups:
            settings: dict[str, Setting] = {"least": least, "past_bytes": past_bytes}
            suffix = materials.drafter("suffix", settings)
            assert isinstance(suffix, Suffix)
            self._suffix = suffix
        self.learned = [
            one for name in filter(None, learned.split(",")) if (one := learned_by(name, materials))
        ]
        if not learned and not look_ups:
            raise ValueError(
                "drafter 'adaptive': nobody is left to draft: name methods in learned, or leave "
                "look_ups true"
            )
        if not self.learned and not look_ups:
            raise BundleError(f"bundle {materials.bundle.name} has no part {learned!r} drafts with")
        self._offered = [one for one in self.learned for _ in FIRST_OR_ALL]
        self.captures = frozenset[int]().union(*(one.drafter.captures for one in self.learned))
        self._used: dict[int, Used] = {}
        self._rest, self._plain = Rest(), PlainSteps()
        self._promise: tuple[Arm, float] | None = None
        self._came = 0

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Look up, decide who drafts, let it draft, and keep what pays."""
        self._used.clear()
        if self._promise:
            arm, promised = self._promise
            arm.kept(promised, self._came)
        self._promise, self._came = None, 0
        foretold = self._foretold(proposals)
        choice = self._choice(proposals, [known.survival for known in foretold])
        if self._plain.due(choice.offer is not None or any(choice.lengths)):
            choice = replace(choice, lengths=[0] * len(proposals), offer=None)
        one = None if choice.offer is None else self._offered[choice.offer]
        for idle in self.learned:
            if idle is not one:
                self._costs.sat_out(idle.arm.name)
        if one is None:
            for proposal, known, length in zip(proposals, foretold, choice.lengths, strict=True):
                Suffix.draft(proposal, known, length)
                proposal.drafter = LOOK_UPS if length else NOBODY
            return
        if choice.promised:
            self._promise = one.arm, choice.promised
        taken = [proposals[index] for index in choice.taken]
        one.stop.price = choice.goodput * self._level_seconds(one, len(taken)) / len(taken)
        spent = self._draft(one, taken, [choice.known[index] for index in choice.taken])
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
        self._came += len(path.nodes)
        used = self._used.pop(sequence.id, None)
        seen = used.learn(proposal, path) if used else None
        for one in self.learned:
            mine = used is not None and used.by is one
            proposal.cached = used.cached if used and mine else []
            self._guard.tell(
                one.drafter, sequence, partial(one.drafter.commit, proposal, path, output)
            )
            if not mine:
                one.arm.sat_out(sequence)
            if not mine and seen:
                one.arm.heard(sequence, *seen)
        if self._suffix:
            self._guard.tell(
                self._suffix, sequence, partial(self._suffix.commit, proposal, path, output)
            )

    def begin(self, lease: Lease, source: Lease, length: int) -> int:
        """As far as all learned drafters can."""
        found = [self._guard.begin(one.drafter, lease, source, length) for one in self.learned]
        return min(found, default=length)

    def release(self, sequence: DecodeSequence) -> None:
        """The drafters are released by themselves."""
        self._used.pop(sequence.id, None)
        for one in self.learned:
            one.forget(sequence)

    def _foretold(self, proposals: Sequence[Proposal]) -> list[Continuation]:
        """Return what is looked up for each proposal: nothing where that fails or rests."""
        nothing = [NOTHING] * len(proposals)
        if self._suffix is None:
            return nothing
        suffix, off = self._suffix, partial(self._guard.is_off, self._suffix)

        def look_up() -> list[Continuation]:
            asked = [p for p in proposals if not off(p.sequence)]
            said = iter(suffix.foretold(asked))
            return [NOTHING if off(p.sequence) else next(said) for p in proposals]

        sequences = [proposal.sequence for proposal in proposals]
        return self._guard.attempt(suffix, sequences, look_up, otherwise=nothing)

    def _choice(self, proposals: Sequence[Proposal], survival: Sequence[Sequence[float]]) -> Choice:
        """Who drafts, for whom, how deep."""
        sequences = [p.sequence for p in proposals]
        names = tuple(sequence.id for sequence in sequences)
        clock = time.perf_counter()
        resting = self._rest.lasts(names)
        offers = [] if resting else self._offers(sequences)
        choice = choose(survival, offers, seconds_of(proposals, self._costs), proposals[0].beside)
        if resting:
            return self._rest.goes_on(choice)
        if offers:
            spent = self._costs.step.in_forwards(time.perf_counter() - clock)
            self._rest.after(names, choice, spent)
        return choice

    def _offers(self, sequences: Sequence[DecodeSequence]) -> list[Offer]:
        """Of every drafter its first level, and all that it would draft."""
        offers = list[Offer]()
        for one in self.learned:
            backlog = Backlog.of(one.unread(sequences))
            levels = 1.0, one.arm.reached
            trees = one.arm.trees(sequences)
            if self._guard.rests(one.drafter):
                trees[:] = 0.0
            trees[:, [self._guard.is_off(one.drafter, sequence) for sequence in sequences]] = 0.0
            for reached, tree in zip(levels, trees, strict=True):
                seconds = partial(self._seconds, one, reached, backlog)
                offers.append(Offer(tree, seconds, one.merged))
        return offers

    def _seconds(self, one: Learned, levels: float, backlog: Backlog, drafted: int) -> float:
        """Of drafting for so many of the sequences that the backlog is of."""
        return self._costs.drafting(one.arm.name, backlog.part(levels, drafted))

    def _level_seconds(self, one: Learned, drafted: int) -> float:
        """Of a level more for so many sequences."""
        first, second = (self._costs.drafting(one.arm.name, Draft(n, drafted)) for n in (1, 2))
        return second - first

    def _draft(self, one: Learned, proposals: Sequence[Proposal], known: Sequence[float]) -> float:
        """Seconds that it took. known: what is expected of the foretold tokens alone."""
        plan = one.plan(len(proposals))
        drafts = [
            Proposal(sequence=p.sequence, plan=plan, limit=min(p.limit, one.arm.levels))
            for p in proposals
        ]
        sequences = [p.sequence for p in proposals]
        unread = one.unread(sequences)
        clock = time.perf_counter()
        drafted = self._guard.propose(one.drafter, drafts)
        seconds = time.perf_counter() - clock
        if not drafted:
            self._promise, self._rest = None, Rest()
            return seconds
        # of a long text it may have read but a chunk
        read = [was - left for was, left in zip(unread, one.unread(sequences), strict=True)]
        deepest = max(draft.drafted_levels for draft in drafts)
        self._costs.saw_drafting(one.arm.name, Backlog.of(read).whole(deepest), seconds)
        for proposal, draft, foretold in zip(proposals, drafts, known, strict=True):
            if not self._guard.is_off(one.drafter, proposal.sequence):
                limit = min(proposal.limit, one.arm.levels)
                self._used[proposal.sequence.id] = Used(one, draft, limit, foretold)
        return seconds

    def _merge(self, proposal: Proposal, foretold: Continuation) -> list[float]:
        """Fill a proposal with the draft there is for it and what is foretold. Of its nodes the
        probabilities that they come, none above its parent's."""
        used = self._used.get(proposal.sequence.id)
        survival = used.survival() if used else []
        if used:
            for token, parent in zip(used.draft.tokens, used.draft.parents, strict=True):
                proposal.add(token, parent)
            proposal.cached = list(used.draft.cached)
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
                proposal.drafter = LOOK_UPS if length else NOBODY


def _best(survival: Sequence[float]) -> list[int]:
    """The likeliest nodes that a step has room for; of equals the shallower."""
    return sorted(range(len(survival)), key=lambda node: -survival[node])[:TREE_ROOM]
