"""Every step the drafter that pays, for every sequence: look-ups first, a learned one where more is
expected of it."""

import math
import time
from collections.abc import Sequence
from functools import partial

from schemas.method import Setting
from workers.batch_schedule import schedule_of
from workers.bundle import BundleError
from workers.drafting.arm import Arm
from workers.drafting.goodput import Choice, Offer, choose
from workers.drafting.lookup.continuation import NOTHING
from workers.portfolio import method_of, part_of
from workers.torch_engine import registry
from workers.torch_engine.drafters.suffix import Suffix
from workers.torch_engine.materials import Materials
from workers.torch_engine.models.kv_pool import Lease
from workers.torch_engine.parts import Drafter, Plan, Proposal, Resuming
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tree import Path

NOBODY = "none"
"""In the statistics by drafter: nothing was drafted."""
FAVOURITES: dict[str, Setting] = {"nodes": 16, "k": 1}
"""Of the tree `eagle2`: a chain of the drafter's favourites."""


@register("drafter", "adaptive")
class Adaptive:
    """Grants draft tokens where they bring the whole batch the most tokens a second.

    Every step each sequence has what the suffix drafter foretells, with the probability of each
    token, which costs next to nothing; and each learned drafter (of `learned`, methods whose trees
    and limits they keep, those whose parts the bundle has) expects as many accepted tokens as it
    lately had there, by levels. What is verified is the choice of the highest expected tokens over
    expected seconds (goodput, as in TurboSpec, arXiv 2406.14066, for several drafters), by what
    steps have cost here.

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
            pair for name in learned.split(",") if (pair := _learned(name, materials, priors))
        ]
        if not self._learned and not look_ups:
            raise BundleError(f"bundle {materials.bundle.name} has no part {learned!r} drafts with")
        self._offered = [
            (arm, plan, levels)
            for arm, plan in self._learned
            for levels in range(1, arm.levels + 1)
        ]
        self.captures = frozenset[int]().union(
            *(plan.drafter.captures for _, plan in self._learned)
        )
        self._used: dict[int, tuple[Arm, Proposal]] = {}

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Look up, decide, draft."""
        self._used.clear()
        if not proposals:
            return
        foretold = [
            self._suffix.foretell(p.sequence, p.limit) if self._look_ups else NOTHING
            for p in proposals
        ]
        choice = self._choice(proposals, [f.survival for f in foretold])
        for proposal, known, length in zip(proposals, foretold, choice.lengths, strict=True):
            for token, sure in zip(known.tokens[:length], known.survival, strict=False):
                proposal.add(token, len(proposal) - 1, value=math.log(sure))
            proposal.drafter = "suffix" if length else NOBODY
        if choice.offer is not None:
            self._draft(*self._offered[choice.offer], [proposals[index] for index in choice.taken])

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:
        """Every drafter moves on, those that sat out as well."""
        sequence = proposal.sequence
        if sequence.output_tokens and proposal.drafter is None:
            proposal.drafter = NOBODY  # the last token: nothing was to be drafted
        used, drafted = self._used.pop(sequence.id, (None, None))
        for arm, plan in self._learned:
            proposal.cached = drafted.cached if arm is used and drafted is not None else []
            plan.drafter.commit(proposal, path, output)
            if sequence.output_tokens and arm is used:
                arm.saw(sequence, len(path.nodes), proposal.drafted_levels, len(proposal))
            else:
                arm.sat_out(sequence)
        if self._look_ups:
            self._suffix.commit(proposal, path, output)

    def begin(self, lease: Lease, source: Lease, length: int) -> int:
        """As far as all learned drafters can."""
        drafters = [plan.drafter for _, plan in self._learned]
        found = [d.begin(lease, source, length) for d in drafters if isinstance(d, Resuming)]
        return min(found, default=length)

    def release(self, sequence: DecodeSequence) -> None:
        """The drafters are released by themselves."""
        self._used.pop(sequence.id, None)
        for arm, _ in self._learned:
            arm.forget(sequence)

    def _choice(self, proposals: Sequence[Proposal], survival: Sequence[Sequence[float]]) -> Choice:
        sequences, beside = [p.sequence for p in proposals], proposals[0].beside
        context = sum(len(sequence.tokens) for sequence in sequences)
        offers = [
            Offer(
                [arm.expected(sequence, levels) for sequence in sequences],
                arm.nodes(levels),
                partial(self._costs.drafting, arm.name, levels),
            )
            for arm, _, levels in self._offered
        ]
        return choose(
            survival, offers, lambda rows: self._costs.step(rows + beside, context), beside
        )

    def _draft(self, arm: Arm, plan: Plan, levels: int, proposals: Sequence[Proposal]) -> None:
        drafts = [
            Proposal(sequence=p.sequence, plan=plan, limit=min(p.limit, levels)) for p in proposals
        ]
        clock = time.perf_counter()
        plan.drafter.propose(drafts)
        self._costs.saw_drafting(arm.name, levels, len(drafts), time.perf_counter() - clock)
        for proposal, draft in zip(proposals, drafts, strict=True):
            for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
                proposal.add(token, parent, value=draft.values[node])
            proposal.drafter = arm.name
            self._used[proposal.sequence.id] = arm, draft


def _learned(name: str, materials: Materials, priors: bool) -> tuple[Arm, Plan] | None:
    """None where the bundle has no such part. One that would draw its tokens drafts favourites."""
    spec = method_of(name, materials.bundle)
    part = part_of(spec)
    if part is not None and not materials.bundle.has(part):
        return None
    settings = spec.settings
    drafter: Drafter = materials.drafter(spec.drafter, settings.get("drafter", {}))
    stop = registry.build("stop", spec.stop, materials, settings.get("stop", {}))
    tree = registry.build("tree", spec.tree, materials, settings.get("tree", {}))
    if tree.samples:
        tree = registry.build("tree", "eagle2", materials, FAVOURITES)
    arm = Arm(name, schedule_of(spec).gamma(1), priors=priors)
    return arm, Plan(drafter, tree, stop)
