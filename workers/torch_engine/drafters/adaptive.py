"""The adaptive drafter: in every step the drafter that pays, for each sequence."""

import math
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from workers.bundle import BundleError
from workers.drafting.controller import GRAMMAR, LOOK_UPS, NOBODY, Controller, Decision
from workers.drafting.goodput import Floats, choose
from workers.drafting.lookup.look_ups import Continuation, LookUps
from workers.drafting.lookup.past import PAST_BYTES, PastAnswers
from workers.drafting.step_costs import Draft, StepCosts
from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.drafters.learned import Used, learned_by
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.models.kv_pool import TREE_ROOM, Lease
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import ROOT, Path


@register("drafter", "adaptive")
class Adaptive:
    """Draft with look-ups or a learned drafter, as `Controller` decides before every step.

    A learned drafter grows a wide tree; looked-up tokens are merged into it, and of all nodes those
    that pay are verified. learned: methods whose drafters may draft, where the bundle has their
    parts. least: see LookUps. past_bytes: memory for past responses of all methods; 0 looks at the
    request and the datastore alone. datastore: False looks nothing up in the engine's datastore.
    look_ups: False drafts with the learned ones alone. Tokens are chosen, not
    sampled. Raises BundleError where no drafter is left, ValueError naming a bad setting.
    """

    has_distribution = False
    chooses = True
    """Whether answers tell who drafted (`Proposal.drafter`)."""

    def __init__(
        self,
        context: BuildContext,
        *,
        learned: str = "medusa,eagle3",
        least: float = 0.02,
        past_bytes: int = PAST_BYTES,
        datastore: bool = True,
        look_ups: bool = True,
    ) -> None:
        if not learned and not look_ups:
            raise ValueError(
                "drafter 'adaptive': no drafter is left: name methods in learned, or keep look_ups "
                "true"
            )
        self._costs, self._guard = context.costs, context.guard
        self._costs.wanted = True
        found = [learned_by(name, context) for name in learned.split(",") if name]
        self.learned = {one.name: one for one in found if one is not None}
        if not self.learned and not look_ups:
            raise BundleError(f"bundle {context.bundle.name} has no part {learned!r} drafts with")
        everyone = self.learned.values()
        self.captures = frozenset[int]().union(*(one.drafter.captures for one in everyone))
        self._controller = Controller(
            [one.expectation for one in everyone],
            self._costs,
            _look_ups(context, least, past_bytes, datastore) if look_ups else None,
            self._guard.failures,
        )
        self._used: dict[int, Used] = {}
        self._asked = set[int]()
        """Sequences of the last choice. Where a grammar forces text, none is made."""

    @property
    def bytes(self) -> int:
        """An upper bound on the memory of the sequences' look-up indexes."""
        look_ups = self._controller.look_ups
        return 0 if look_ups is None else look_ups.bytes

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Look up, choose who drafts, draft, and keep the nodes that pay."""
        self._used.clear()
        for learned in self.learned.values():
            learned.follow_exchange()
        sequences = [proposal.sequence for proposal in proposals]
        self._asked = {sequence.id for sequence in sequences}
        for sequence in sequences:
            self._begin(sequence)
        limits: dict[Hashable, int] = {p.sequence.id: _most(p) for p in proposals}
        step = step_seconds(proposals, self._costs)
        missing = partial(self._missing, sequences)
        decision = self._controller.choose(limits, missing, step, proposals[0].others)
        if decision.drafter is None:
            for proposal, one, length in zip(
                proposals, decision.found, decision.lengths, strict=True
            ):
                fill(proposal, one, length)
                proposal.drafter = LOOK_UPS if length else NOBODY
            return
        spent = self._draft(decision, [proposals[i] for i in decision.taken])
        merged = [self._merge(p, one) for p, one in zip(proposals, decision.found, strict=True)]
        self._keep(proposals, merged, spent)

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:
        """Learn from the step, and move every drafter on, idle ones too."""
        sequence = proposal.sequence
        self._begin(sequence)
        emitted = [*(proposal.tokens[node] for node in path.nodes), path.bonus]
        alone = proposal.drafter == LOOK_UPS
        used, cached = self._used.pop(sequence.id, None), proposal.cached
        draft = (used.by.name, *used.learn(emitted)) if used else None
        if sequence.id in self._asked:
            self._asked.remove(sequence.id)
            self._controller.learn(sequence.id, emitted, len(proposal) if alone else 0, draft)
        for one in self.learned.values():
            proposal.cached = cached if used and used.by is one else []
            commit = partial(one.drafter.commit, proposal, path, output)
            self._guard.tell(one.drafter, sequence, commit)
        if not self.chooses and proposal.drafter != GRAMMAR:
            proposal.drafter = None
        elif sequence.output_tokens and proposal.drafter is None:
            proposal.drafter = NOBODY  # the last token: nothing was to be drafted

    def begin(self, sequence: DecodeSequence, lease: Lease, source: Lease, length: int) -> int:
        """Return how many tokens of another row all learned drafters can go on from."""
        found = [
            self._guard.begin(one.drafter, sequence, lease, source, length)
            for one in self.learned.values()
        ]
        return min(found, default=length)

    def release(self, sequence: DecodeSequence) -> None:
        """Forget a sequence; the drafters are released by themselves."""
        self._used.pop(sequence.id, None)
        self._controller.forget(sequence.id)

    def _begin(self, sequence: DecodeSequence) -> None:
        if (look_ups := self._controller.look_ups) is not None:
            greedy = sequence.sampling.temperature == 0.0
            look_ups.begin(
                sequence.id,
                sequence.tokens,
                sequence.request.scope,
                greedy=greedy,
                prediction=sequence.prediction,
            )

    def _missing(
        self, sequences: Sequence[DecodeSequence], name: str
    ) -> Sequence[int | None] | None:
        """Return the tokens that a drafter lacks of each sequence; see controller.Missing."""
        one = self.learned[name]
        if self._guard.rests(one.drafter):
            return None
        can = [not self._guard.is_off(one.drafter, s) and one.drafts_for(s) for s in sequences]
        if not any(can):
            return None
        return [one.unread(s) if yes else None for s, yes in zip(sequences, can, strict=True)]

    def _draft(self, decision: Decision, proposals: Sequence[Proposal]) -> float:
        """Let the chosen drafter draft; return its seconds."""
        assert decision.drafter is not None
        one = self.learned[decision.drafter]
        one.price, one.row_price = decision.level_price, decision.row_price
        one.granted = {
            p.sequence.id: decision.lengths[i]
            for i, p in zip(decision.taken, proposals, strict=True)
        }
        plan, levels = one.plan(len(proposals)), one.expectation.levels
        drafts = [
            Proposal(sequence=p.sequence, plan=plan, limit=min(p.limit, levels)) for p in proposals
        ]
        unread = [one.unread(p.sequence) for p in proposals]
        clock = time.perf_counter()
        drafted = self._guard.propose(one.drafter, drafts)
        seconds = time.perf_counter() - clock
        deepest = max(draft.drafted_levels for draft in drafts)
        if not deepest:
            self._controller.undrafted()  # it failed, or read a part of a long prompt
        if not drafted:
            return seconds
        read = [was - one.unread(p.sequence) for was, p in zip(unread, proposals, strict=True)]
        self._costs.saw_drafting(one.name, Draft.of(deepest, read), seconds)
        for draft in drafts:
            if not self._guard.is_off(one.drafter, draft.sequence):
                self._used[draft.sequence.id] = Used(one, draft)
        return seconds

    def _merge(self, proposal: Proposal, found: Continuation) -> list[float]:
        """Fill a proposal with its draft and the looked-up tokens; return each node's probability,
        none above its parent's."""
        used = self._used.get(proposal.sequence.id)
        probabilities = used.probabilities() if used else []
        if used:
            for token, parent in zip(used.draft.tokens, used.draft.parents, strict=True):
                proposal.add(token, parent)
            proposal.cached = list(used.draft.cached)
        at = ROOT
        for token, probability in zip(found.tokens, found.probabilities, strict=True):
            same = [child for child in proposal.children(at) if proposal.tokens[child] == token]
            if same:
                at = same[0]
                probabilities[at] = max(probabilities[at], probability)
            else:
                at = proposal.add(token, at)
                probabilities.append(probability)
        return probabilities

    def _keep(
        self, proposals: Sequence[Proposal], probabilities: Sequence[Sequence[float]], spent: float
    ) -> None:
        """Keep the nodes that bring the most tokens a second, after drafting took so long."""
        best = [_most_probable(one) for one in probabilities]
        falling = [[one[i] for i in nodes] for one, nodes in zip(probabilities, best, strict=True)]
        granted = worthwhile(proposals, falling, self._costs, spent)
        for proposal, nodes, length in zip(proposals, best, granted, strict=True):
            if length < len(proposal):
                proposal.keep(sorted(nodes[:length]))
            proposal.drafter = LOOK_UPS if length else NOBODY
            used = self._used.get(proposal.sequence.id)
            if used is not None:
                proposal.drafter = used.by.name


def _most(proposal: Proposal) -> int:
    """Return how many tokens may be looked up: more than the limit while a prediction is right."""
    sequence = proposal.sequence
    room = 0 if sequence.prediction is None else sequence.prediction.room(sequence.tokens)
    return max(proposal.limit, min(room, sequence.draftable))


def fill(proposal: Proposal, found: Continuation, length: int) -> None:
    """Add the first `length` looked-up tokens to a proposal, as a chain."""
    for token, probability in zip(found.tokens[:length], found.probabilities, strict=False):
        proposal.add(token, len(proposal) - 1, value=math.log(probability))


def worthwhile(
    proposals: Sequence[Proposal],
    probabilities: Sequence[Sequence[float]],
    costs: StepCosts,
    spent: float,
) -> list[int]:
    """Return how many draft tokens of each sequence bring the batch the most tokens a second.

    probabilities: of each sequence's tokens, falling. spent: seconds that drafting took.
    """
    seconds = step_seconds(proposals, costs)
    found = choose(probabilities, (), lambda rows: seconds(rows) + spent, proposals[0].others)
    return found.lengths


def step_seconds(proposals: Sequence[Proposal], costs: StepCosts) -> Callable[[Floats], Floats]:
    """Return the seconds of a step by the rows that these proposals verify; sequences of other
    methods are taken to have the same length and no drafts."""
    count, others = len(proposals), proposals[0].others
    context = sum(len(proposal.sequence.tokens) for proposal in proposals)
    together = count + others
    return lambda rows: costs.step.of(rows + others, together, context * together // count)


def _look_ups(context: BuildContext, least: float, past_bytes: int, datastore: bool) -> LookUps:
    past = context.past if past_bytes else PastAnswers()
    stored = context.datastore if datastore else None
    try:
        context.past.want(past_bytes)
        return LookUps(least=least, past=past, datastore=stored)
    except ValueError as error:
        raise ValueError(f"look-ups: {error}") from error


def _most_probable(probabilities: Sequence[float]) -> list[int]:
    """Return the most probable nodes that a step has room for; of equals the shallower."""
    return sorted(range(len(probabilities)), key=lambda node: -probabilities[node])[:TREE_ROOM]


@register("drafter", "suffix")
class Suffix(Adaptive):
    """Draft as many looked-up tokens as bring the batch the most tokens a second.

    least, past_bytes, datastore: see Adaptive.
    """

    chooses = False

    def __init__(
        self,
        context: BuildContext,
        *,
        least: float = 0.1,
        past_bytes: int = PAST_BYTES,
        datastore: bool = True,
    ) -> None:
        super().__init__(
            context, learned="", least=least, past_bytes=past_bytes, datastore=datastore
        )
