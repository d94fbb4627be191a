"""The adaptive drafter: look-ups, a learned drafter, both or neither, as brings the most tokens."""

import time
from collections.abc import Hashable, Sequence
from functools import partial

from workers.bundle import BundleError
from workers.drafting.controller import GRAMMAR, LOOK_UPS, NOBODY, Batch, Controller, Decision
from workers.drafting.estimates import Estimates
from workers.drafting.lookup.look_ups import Continuation, LookUps
from workers.drafting.lookup.past import PAST_BYTES, PastAnswers
from workers.drafting.step_costs import Finished
from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.drafters.learned import Learned, learned_by
from workers.torch_engine.interfaces import Drafter, Proposal, TargetOutput
from workers.torch_engine.models.kv_pool import TREE_ROOM, Lease
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import ROOT, Path


@register("drafter", "adaptive")
class Adaptive(Drafter):
    """Draft as `Controller` chooses before every step.

    A learned drafter grows a tree or a chain; looked-up tokens are merged into it, and of all nodes
    those that pay are verified. learned: methods whose drafters may draft, where the bundle has
    their parts. least: see LookUps. past_bytes: memory for past responses of all methods; 0 looks
    at the request and the datastore alone. datastore: False looks nothing up in the engine's
    datastore. look_ups: False drafts with the learned ones alone. Tokens are chosen, not
    sampled. Raises BundleError where no drafter is left, ValueError naming a bad setting.
    """

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
        self._guard, self._chooses = context.guard, bool(learned)
        context.costs.wanted = True
        estimates = Estimates()
        found = [learned_by(name, context, estimates) for name in learned.split(",") if name]
        self.learned = {one.acceptance.name: one for one in found if one is not None}
        if not self.learned and not look_ups:
            raise BundleError(f"bundle {context.bundle.name} has no part {learned!r} drafts with")
        everyone = self.learned.values()
        self.captures = frozenset[int]().union(*(one.drafter.captures for one in everyone))
        self._look_ups: LookUps | None = None
        if look_ups:
            context.past.want(past_bytes)
            past = context.past if past_bytes else PastAnswers()
            stored = context.datastore if datastore else None
            self._look_ups = LookUps(least=least, past=past, datastore=stored, estimates=estimates)
        self.controller = Controller(
            [one.acceptance for one in everyone],
            context.costs,
            self._look_ups,
            self._guard.failures,
            estimates,
        )
        self._drafts: dict[int, tuple[Learned, Proposal]] = {}
        self._asked = set[int]()
        """Sequences of the last choice. Where a grammar forces text, none is made."""

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Look up, choose who drafts, draft, and keep the nodes that pay."""
        self._drafts.clear()
        for name, one in self.learned.items():
            if one.exchanged():
                self.controller.estimates.exchanged(name)
        sequences: dict[Hashable, DecodeSequence] = {p.sequence.id: p.sequence for p in proposals}
        self._asked = {p.sequence.id for p in proposals}
        batch = Batch(
            limits={p.sequence.id: _most(p) for p in proposals},
            missing=partial(self._missing, proposals),
            begin=lambda name: self._begin(sequences[name]),
            predicted={s.id for s in sequences.values() if s.prediction is not None},
            greedy=all(s.sampling.temperature == 0.0 for s in sequences.values()),
            others=proposals[0].others,
        )
        decision = self.controller.choose(batch)
        if decision.drafter is not None:
            self._draft(decision, [proposals[i] for i in decision.taken])
        if not decision.found:
            for proposal in proposals:
                proposal.drafter = NOBODY
            return
        found = zip(proposals, decision.found, strict=True)
        merged = [_merged(p, one, self._drafts.get(p.sequence.id)) for p, one in found]
        best = [_most_probable(one) for one in merged]
        falling = [[one[i] for i in nodes] for one, nodes in zip(merged, best, strict=True)]
        granted = self.controller.granted(decision, falling)
        for proposal, nodes, length in zip(proposals, best, granted, strict=True):
            if length < len(proposal):
                proposal.keep(sorted(nodes[:length]))
            proposal.drafter = LOOK_UPS if length else NOBODY
            if proposal.sequence.id in self._drafts:
                proposal.drafter = self._drafts[proposal.sequence.id][0].acceptance.name

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:
        """Learn from the step, and move every drafter on, idle ones too."""
        sequence, cached = proposal.sequence, proposal.cached
        by, draft = self._drafts.pop(sequence.id, (None, None))
        if sequence.id in self._asked:
            self._asked.remove(sequence.id)
            emitted = [*(proposal.tokens[node] for node in path.nodes), path.bonus]
            learned = by.learn(draft, emitted) if by and draft else None
            alone = len(proposal) if proposal.drafter == LOOK_UPS else 0
            self.controller.learn(sequence.id, emitted, alone, learned)
        for one in self.learned.values():
            proposal.cached = cached if by is one else []
            commit = partial(one.drafter.commit, proposal, path, output)
            self._guard.tell(one.drafter, sequence, commit)
        if not self._chooses and proposal.drafter != GRAMMAR:
            proposal.drafter = None
        elif sequence.output_tokens and proposal.drafter is None:
            proposal.drafter = NOBODY  # the last token: nothing was to be drafted

    def finished(self, step: Finished) -> None:
        """Learn what the step took."""
        self.controller.finished(step)

    def begin(self, sequence: DecodeSequence, lease: Lease, source: Lease, length: int) -> int:
        """Return how many tokens of another row all learned drafters can go on from."""
        found = [
            self._guard.begin(one.drafter, sequence, lease, source, length)
            for one in self.learned.values()
        ]
        return min(found, default=length)

    def release(self, sequence: DecodeSequence) -> None:
        """Forget a sequence; the drafters are released by themselves."""
        self._drafts.pop(sequence.id, None)
        self.controller.forget(sequence.id)

    def _begin(self, sequence: DecodeSequence) -> None:
        assert self._look_ups is not None
        self._look_ups.begin(
            *(sequence.id, sequence.tokens, sequence.request.scope),
            greedy=sequence.sampling.temperature == 0.0,
            prediction=sequence.prediction,
        )

    def _missing(self, proposals: Sequence[Proposal], name: str) -> Sequence[int | None] | None:
        """Return the tokens that a drafter lacks of each sequence; see controller.Missing."""
        one = self.learned[name]
        if self._guard.failures.rests(one.drafter.name):
            return None
        return [
            None if self._guard.is_off(one.drafter, p.sequence) else one.missing(p.sequence)
            for p in proposals
        ]

    def _draft(self, decision: Decision, proposals: Sequence[Proposal]) -> None:
        """Let the chosen drafter draft."""
        one, most = self.learned[decision.arm.drafter], decision.arm.levels
        plan = one.plan(decision)
        drafts = [
            Proposal(sequence=p.sequence, plan=plan, limit=min(p.limit, most)) for p in proposals
        ]
        missing = [one.missing(p.sequence) or 0 for p in proposals]
        clock = time.perf_counter()
        drafted = self._guard.propose(one.drafter, drafts)
        seconds = time.perf_counter() - clock
        # 0 where it failed, or read a part of a long prompt
        levels = max(draft.drafted_levels for draft in drafts)
        self.controller.drafted(levels, seconds, missing)
        for draft in drafts if drafted else ():
            if not self._guard.is_off(one.drafter, draft.sequence):
                self._drafts[draft.sequence.id] = one, draft


def _merged(
    proposal: Proposal, found: Continuation, drafted: tuple[Learned, Proposal] | None
) -> list[float]:
    """Fill a proposal with its draft and the looked-up tokens; return each node's probability,
    none above its parent's."""
    probabilities = list[float]()
    if drafted is not None:
        by, draft = drafted
        probabilities = by.probabilities(draft)
        for token, parent in zip(draft.tokens, draft.parents, strict=True):
            proposal.add(token, parent)
        proposal.cached = list(draft.cached)
    nodes = proposal.follow(found.tokens)
    for node, probability in zip(nodes, found.probabilities, strict=False):
        probabilities[node] = max(probabilities[node], probability)
    at = nodes[-1] if nodes else ROOT
    for token in found.tokens[len(nodes) :]:
        at = proposal.add(token, at)
    return [*probabilities, *found.probabilities[len(nodes) :]]


def _most(proposal: Proposal) -> int:
    """Return how many tokens may be looked up: more than the limit while a prediction is right."""
    sequence = proposal.sequence
    room = 0 if sequence.prediction is None else sequence.prediction.room(sequence.tokens)
    return max(proposal.limit, min(room, sequence.draftable))


def _most_probable(probabilities: Sequence[float]) -> list[int]:
    """Return the most probable nodes that a step has room for; of equals the shallower."""
    return sorted(range(len(probabilities)), key=lambda node: -probabilities[node])[:TREE_ROOM]


@register("drafter", "suffix")
class Suffix(Adaptive):
    """Draft as many looked-up tokens as bring the batch the most tokens a second.

    least, past_bytes, datastore: see Adaptive.
    """

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
