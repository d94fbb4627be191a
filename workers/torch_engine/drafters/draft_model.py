"""A drafter that is a small model with the target's tokenizer and a KV cache of its own."""

from collections.abc import Sequence

from workers.drafting.step_costs import CATCH_UP
from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.interfaces import Drafter, Proposal, TargetOutput
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.models.kv_pool import DrafterKvRows, Lease
from workers.torch_engine.models.layout import Span
from workers.torch_engine.models.model import load_model
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import ROOT, Path
from workers.torch_engine.tree_growth import frontier_span, grow, kept_slots


class KvDrafter(Drafter):
    """Keep and free the drafter's rows together with the target's."""

    _rows: DrafterKvRows

    def keep(self, sequence: DecodeSequence) -> None:
        """Keep the sequence's row."""
        self._rows.keep(sequence.lease)

    def drop(self, lease: Lease) -> None:
        """Free a kept row."""
        self._rows.drop(lease)

    def release(self, sequence: DecodeSequence) -> None:
        """Free the sequence's row."""
        self._rows.release(sequence.lease)


@register("drafter", "draft_model")
class DraftModel(KvDrafter):
    """Draft autoregressively, the whole batch one level at a time.

    part: the bundle's part that holds the model. A few missing tokens are read within the first
    draft forward. A long prompt is read in chunks, one per step; until it is read the sequence
    drafts nothing, so that no other sequence waits for it.
    """

    has_distribution = True

    def __init__(self, context: BuildContext, *, part: str = "draft") -> None:
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
        self._rows = DrafterKvRows(self.pool)

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Grow each tree by levels until its limit, its stop or an empty frontier."""
        self.pool.settle()
        active = self._caught_up([p for p in proposals if p.limit > 0])
        grow(sorted(active, key=lambda p: self._rows[p.sequence.lease].row), self._read_frontiers)

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:  # noqa: ARG002
        """Keep the cached nodes of the accepted path (the deepest level was never read)."""
        lease = proposal.sequence.lease
        if lease in self._rows:
            self.pool.commit(self._rows[lease], kept_slots(proposal, path.nodes))

    def begin(self, sequence: DecodeSequence, lease: Lease, source: Lease, length: int) -> int:  # noqa: ARG002
        """Continue after the other row's draft cache; return `length`, since missing tokens are
        read here."""
        self._rows.begin(lease, source, length)
        return length

    def unread(self, sequence: DecodeSequence) -> int:
        """Return how many tokens of the sequence its cache lacks, without the last."""
        return max(0, len(sequence.tokens) - 1 - self._rows.length(sequence.lease))

    def _caught_up(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Read up to a chunk of missing tokens; return the proposals that lack only a few now."""
        budget, ready = self._chunk, list[Proposal]()
        for proposal in proposals:
            sequence = proposal.sequence
            if sequence.lease not in self._rows:
                self._rows.acquire(sequence.lease)
            lease = self._rows[sequence.lease]
            # the last token is read again where the step has drafted before, and failed
            lease.length = min(lease.length, len(sequence.tokens) - 1)
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

    def _read_frontiers(self, active: list[Proposal]) -> DraftLogits:
        """Return the logits at the frontiers. The first level also reads missing tokens."""
        spans = [self._span(proposal) for proposal in active]
        logits, _ = self.model.forward(self.model.lay_out(spans, self.pool), self.pool)
        for proposal, span in zip(active, spans, strict=True):
            if proposal.frontier == [ROOT]:
                span.lease.length += len(span.tokens)
            else:
                proposal.cached.extend(proposal.frontier)
        return DraftLogits.of_all(logits)

    def _span(self, proposal: Proposal) -> Span:
        lease = self._rows[proposal.sequence.lease]
        if proposal.frontier != [ROOT]:
            return frontier_span(proposal, lease)
        missing = proposal.sequence.tokens[lease.length :]
        return Span(lease, missing, logits_from=len(missing) - 1)
