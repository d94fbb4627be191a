"""A small model of the same tokenizer drafts, with a KV cache of its own."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from torch import Tensor

from workers.torch_engine.kv_pool import Lease
from workers.torch_engine.layout import Span
from workers.torch_engine.model import load_model
from workers.torch_engine.parts import Context, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import Sequence
from workers.torch_engine.tree import ROOT, Path, Proposal

CATCH_UP = 16
"""Missing tokens beyond which a sequence catches up in forwards of its own, so that one long
prompt does not pad the whole batch."""


@dataclass(slots=True)
class _State:
    """One sequence's row, and the tree nodes whose keys lie behind its committed tokens."""

    lease: Lease
    read: list[int] = field(default_factory=list)


@register("drafter", "draft_model")
class DraftModel:
    """Autoregressive drafting, the whole batch one level at a time.

    part: the bundle's part that holds the model. The few tokens its cache missed (the bonus) are
    read within the first draft forward; long prompts in chunks, one a step, and until its prompt
    is read a sequence drafts nothing, so that neither it nor the others stall.
    """

    captures: frozenset[int] = frozenset()
    has_distribution = True

    def __init__(self, context: Context, *, part: str = "draft") -> None:
        self.model = load_model(context.bundle.part(part), context.dtype, context.device)
        if self.model.vocab != context.vocab:
            raise ValueError(
                f"the bundle's part {part!r} has a vocabulary of {self.model.vocab}, "
                f"the target {context.vocab}: they must share a tokenizer"
            )
        reach = self.model.max_positions
        if reach is not None and reach < context.capacity:
            raise ValueError(
                f"the bundle's part {part!r} computes {reach} positions, the context is "
                f"{context.capacity}: set engine.max_context to at most {reach}"
            )
        self.pool = self.model.make_pool(context.rows, context.capacity)
        self._chunk = context.chunk
        self._states: dict[int, _State] = {}

    def propose(self, proposals: Seq[Proposal]) -> None:
        """Grow each tree level by level until its limit, its stop or an empty frontier."""
        active = self._caught_up([p for p in proposals if p.limit > 0])
        active.sort(key=lambda p: self._states[p.sequence.id].lease.row)
        level = 0
        while active:
            spans = [self._span(p) for p in active]
            logits, _ = self.model.forward(self.model.lay_out(spans, self.pool), self.pool)
            for proposal in active:
                self._note_read(proposal)
            _expand(active, logits)
            level += 1
            active = [
                p for p in active if level < p.limit and p.frontier and p.plan.stop.goes_on(p)
            ]

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:  # noqa: ARG002
        """Keep the cached nodes of the accepted path (the deepest level was never read)."""
        state = self._states.get(proposal.sequence.id)
        if state is not None and state.read:
            place = {node: index for index, node in enumerate(state.read)}
            self.pool.commit(state.lease, [place[node] for node in path.nodes if node in place])
            state.read.clear()

    def release(self, sequence: Sequence) -> None:
        """Give the sequence's row back."""
        state = self._states.pop(sequence.id, None)
        if state is not None:
            self.pool.release(state.lease)

    def _caught_up(self, proposals: Seq[Proposal]) -> list[Proposal]:
        """Read at most a chunk of what is missing; those whose cache now lacks but a few tokens."""
        budget, ready = self._chunk, list[Proposal]()
        for proposal in proposals:
            sequence = proposal.sequence
            if sequence.id not in self._states:
                self._states[sequence.id] = _State(self.pool.acquire())
            lease = self._states[sequence.id].lease
            missing = sequence.tokens[lease.length : -1]
            if len(missing) >= CATCH_UP:
                read = missing[:budget]
                self._read(lease, read)
                budget -= len(read)
                missing = missing[len(read) :]
            if len(missing) < CATCH_UP:
                ready.append(proposal)
        return ready

    def _read(self, lease: Lease, tokens: list[int]) -> None:
        if tokens:
            span = Span(lease, tokens, logits_from=len(tokens) - 1)
            self.model.forward(self.model.lay_out([span], self.pool), self.pool)
            lease.length += len(tokens)

    def _span(self, proposal: Proposal) -> Span:
        """The proposal's frontier: at first the tokens the cache lacks, then the newest nodes."""
        state, tokens = self._states[proposal.sequence.id], proposal.sequence.tokens
        if proposal.frontier == [ROOT]:
            missing = tokens[state.lease.length :]
            return Span(state.lease, missing, logits_from=len(missing) - 1)
        new = [proposal.tokens[node] for node in proposal.frontier]
        if proposal.is_chain:
            return Span(state.lease, new, read=len(state.read))
        order = {node: index for index, node in enumerate(state.read + proposal.frontier)}
        parents = [order.get(proposal.parents[node], ROOT) for node in order]
        return Span(state.lease, new, parents=parents, read=len(state.read))

    def _note_read(self, proposal: Proposal) -> None:
        state = self._states[proposal.sequence.id]
        if proposal.frontier == [ROOT]:
            state.lease.length = len(proposal.sequence.tokens)
        else:
            state.read.extend(proposal.frontier)


def _expand(active: list[Proposal], logits: Tensor) -> None:
    """Let each tree extend its own proposals; logits rows follow `active` and its frontiers."""
    trees = {id(p.plan.tree): p.plan.tree for p in active}
    if len(trees) == 1:
        active[0].plan.tree.expand(active, logits)
        return
    starts = [0]
    for proposal in active:
        starts.append(starts[-1] + len(proposal.frontier))
    for key, tree in trees.items():
        members = [i for i, p in enumerate(active) if id(p.plan.tree) == key]
        rows = [row for i in members for row in range(starts[i], starts[i + 1])]
        tree.expand([active[i] for i in members], logits[rows])
