"""Drafting with heads that predict features: EAGLE and EAGLE-3."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath

import torch
from torch import Tensor

from workers.bundle import BundleError
from workers.drafting.step_costs import CATCH_UP
from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.drafters.draft_model import KvDrafter
from workers.torch_engine.drafters.head_versions import HeadVersions
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.models.heads.eagle import Eagle3Head, EagleHead, capture_layers
from workers.torch_engine.models.heads.feature_head import FeatureHead
from workers.torch_engine.models.kv_pool import DrafterKvRows, KvPool, Lease
from workers.torch_engine.models.layout import Span
from workers.torch_engine.models.shape import LlamaShape
from workers.torch_engine.models.transfer import indices
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import Path
from workers.torch_engine.tree_growth import frontier_span, grow


@dataclass(slots=True)
class _State:
    """A sequence's head and row, with `lease.length` pairs read, and the captured states of the
    tokens after them [n, captures * hidden]. before: both as they were before the step's draft."""

    head: FeatureHead
    lease: Lease
    unread: list[Tensor] = field(default_factory=list)
    before: tuple[int, list[Tensor]] | None = None

    def begin(self) -> None:
        """Begin the step's draft, or begin it again after a failure."""
        if self.before is None:
            self.before = self.lease.length, self.unread
        self.lease.length, self.unread = self.before[0], [*self.before[1]]

    def take(self) -> Tensor:
        """Return the unread states and forget them."""
        taken, self.unread = self.unread, []
        return taken[0] if len(taken) == 1 else torch.cat(taken)


class FeatureDrafter(KvDrafter):
    """Draft autoregressively over features, the whole batch one level at a time.

    The head reads pairs of a token's feature and the token after it. Features of committed
    tokens are the target's hidden states: those of the last step are read within the first draft
    forward, many in forwards of their own. They are read as soon as they are a chunk of a prompt,
    also while another drafter drafts: this bounds their memory, and the head can take over at any
    time. A tree node's feature is what the head predicted for its parent. Pairs of nodes are
    dropped after the step.

    All versions of the head share the pool: a row holds the pairs of one sequence.

    captures: what the head will read, for a bundle that grows it. Sequences then have no drafts
    until a version is exchanged in, and the first one makes the pool.
    """

    has_distribution = True

    def __init__(
        self,
        kind: type[FeatureHead],
        part: str,
        context: BuildContext,
        captures: tuple[int, ...] | None = None,
    ) -> None:
        bundled = context.bundle.part(part) if captures is None else None
        self._rows = DrafterKvRows()
        self._chunk = context.chunk
        self._states: dict[int, _State] = {}
        like: tuple[LlamaShape, tuple[int, ...]] | None = None

        def load(folder: FilePath | None) -> FeatureHead | None:
            nonlocal like
            if (source := folder or bundled) is None:
                return None
            head = kind(source, context.target)
            if like is None and captures in (None, head.captures):
                like = head.shape, head.captures
                self._rows.pool = head.block.make_pool(1, context.rows, context.capacity)
            if (head.shape, head.captures) != like:
                raise BundleError(
                    f"{folder}/config.json: this head has another shape, or reads other layers, "
                    f"than the part {part!r} that is served: only a head trained from that one fits"
                )
            head.use(self.pool)
            return head

        own = load(None)
        self.captures = frozenset(own.captures if own else captures or ())
        self.versions = HeadVersions(part, own, load)

    @property
    def pool(self) -> KvPool:
        """The pairs of all sequences; there is none before the first head."""
        return self._rows.pool

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Grow each tree by levels until its limit, its stop or an empty frontier."""
        proposals = [p for p in proposals if p.sequence.id in self._states]
        if proposals:
            self.pool.settle()
        for proposal in proposals:
            self._states[proposal.sequence.id].begin()
            self._catch_up(proposal.sequence)
        ordered = sorted(proposals, key=lambda p: self._states[p.sequence.id].lease.row)
        heads = [self._states[p.sequence.id].head for p in ordered]
        for head in dict.fromkeys(heads):
            members = [p for p, its in zip(ordered, heads, strict=True) if its is head]
            grow(members, _Levels(head, self.pool, self._states).read)

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:
        """Keep the target's states of the read tokens and the accepted path."""
        sequence = proposal.sequence
        head = self.versions.of(sequence)
        if head is None:
            return
        start, pending = output.starts[sequence.id], output.pending[sequence.id]
        if sequence.id not in self._states:
            if sequence.lease not in self._rows:
                self._rows.acquire(sequence.lease, self.versions.bind(sequence))
            own = self._rows[sequence.lease]
            # another drafter may have read less: then the states begin where it ends
            before = sequence.lease.length - pending - len(path.nodes)
            self.pool.cut(own, min(own.length, before))
            self._states[sequence.id] = _State(head, own)
        rows: slice | Tensor = slice(start, start + pending + len(path.nodes))
        if path.nodes and path.nodes[-1] != len(path.nodes) - 1:
            tree = start + pending
            picked = [*range(start, tree), *(tree + node for node in path.nodes)]
            rows = indices(picked, self.pool.data.device)
        state = self._states[sequence.id]
        state.before = None
        states = [output.hidden[capture][rows] for capture in state.head.captures]
        # a copy even of one capture: a view would keep the whole batch's states alive
        state.unread.append(torch.cat(states, -1))
        if self.unread(sequence) >= self._chunk:
            self._catch_up(sequence)

    def begin(self, sequence: DecodeSequence, lease: Lease, source: Lease, length: int) -> int:
        """Continue after the other row's pairs; return how many tokens the target need not read
        again. The next pair begins with the last token's state, so that token is read again."""
        if self.versions.of(sequence) is None:
            return length
        return self._rows.begin(lease, source, length - 1, self.versions.bind(sequence))

    def unread(self, sequence: DecodeSequence) -> int:
        """Return how many pairs of the sequence it lacks, without the last. A partly read prompt
        has fewer states."""
        if sequence.id not in self._states:
            return 0
        state = self._states[sequence.id]
        missing = len(sequence.tokens) - 2 - state.lease.length
        return max(0, min(missing, sum(map(len, state.unread))))

    def keep(self, sequence: DecodeSequence) -> None:
        """Keep the sequence's row, and read unread pairs first: their states would be lost."""
        if sequence.id in self._states:
            self._catch_up(sequence)
        super().keep(sequence)

    def release(self, sequence: DecodeSequence) -> None:
        """Free the sequence's row."""
        self._states.pop(sequence.id, None)
        super().release(sequence)
        self.versions.release(sequence)

    def _catch_up(self, sequence: DecodeSequence) -> None:
        """Read all pairs but the last, if many are missing, a chunk at a time."""
        while (count := min(self.unread(sequence), self._chunk)) >= CATCH_UP:
            state = self._states[sequence.id]
            missing = sequence.tokens[state.lease.length + 1 :][:count]
            states = state.take()
            span = Span(state.lease, missing, logits_from=count - 1)
            layout = state.head.block.lay_out([span], self.pool)
            # the last step may have accepted more tokens than the response may have
            state.head.forward(state.head.combine(states[:count]), layout, self.pool)
            state.lease.length += count
            state.unread = [states[count:].clone()]


class _Levels:
    """The forwards of one `propose`, with the head's predictions on the newest level."""

    def __init__(self, head: FeatureHead, pool: KvPool, states: dict[int, _State]) -> None:
        self._head, self._pool, self._states = head, pool, states
        self._predicted: Tensor | None = None
        self._rows: dict[tuple[int, int], int] = {}

    def read(self, active: list[Proposal]) -> DraftLogits:
        """Return the head's logits at the frontiers; see `grow`."""
        if self._predicted is None:
            spans, features = self._committed(active)
        else:
            spans = [frontier_span(p, self._states[p.sequence.id].lease) for p in active]
            features = self._of_parents(active, self._predicted)
        layout = self._head.block.lay_out(spans, self._pool)
        predicted, logits = self._head.forward(features, layout, self._pool)
        for proposal, span in zip(active, spans, strict=True):
            if self._predicted is None:
                span.lease.length += len(span.tokens)
            else:
                proposal.cached.extend(proposal.frontier)
        nodes = [(p.sequence.id, node) for p in active for node in p.frontier]
        self._rows = {node: row for row, node in enumerate(nodes)}
        self._predicted = predicted
        return logits

    def _committed(self, active: list[Proposal]) -> tuple[list[Span], Tensor]:
        """Return the unread pairs of committed tokens, with logits after the last one."""
        spans, unread = list[Span](), list[Tensor]()
        for proposal in active:
            state = self._states[proposal.sequence.id]
            tokens = proposal.sequence.tokens[state.lease.length + 1 :]
            spans.append(Span(state.lease, tokens, logits_from=len(tokens) - 1))
            unread.append(state.take())
        return spans, self._head.combine(unread[0] if len(unread) == 1 else torch.cat(unread))

    def _of_parents(self, active: list[Proposal], predicted: Tensor) -> Tensor:
        """Return each frontier node's feature: its parent's prediction."""
        rows = [self._rows[p.sequence.id, p.parents[node]] for p in active for node in p.frontier]
        if rows == [*range(len(predicted))]:
            return predicted
        return predicted[indices(rows, predicted.device)]


@register("drafter", "eagle")
class Eagle(FeatureDrafter):
    """Load the head. part: the bundle's part that holds it."""

    def __init__(self, context: BuildContext, *, part: str = "eagle") -> None:
        super().__init__(EagleHead, part, context)


@register("drafter", "eagle3")
class Eagle3(FeatureDrafter):
    """Load the head. part: the bundle's part that holds it."""

    def __init__(self, context: BuildContext, *, part: str = "eagle3") -> None:
        growing = part in context.bundle.growing
        captures = capture_layers(context.target.layer_count) if growing else None
        super().__init__(Eagle3Head, part, context, captures)
