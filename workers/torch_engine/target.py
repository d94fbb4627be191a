"""The target model with its KV pool: one forward over every sequence's tree."""

from collections.abc import Collection, Sequence

from workers.torch_engine.models.kv_pool import KvPool
from workers.torch_engine.models.layout import Span
from workers.torch_engine.models.model import Model
from workers.torch_engine.parts import Proposal
from workers.torch_engine.stopwatch import Stopwatch
from workers.torch_engine.target_output import TargetOutput
from workers.torch_engine.tree import Path


class Target:
    """Verifies proposals: pending committed tokens and tree nodes of all sequences in one go."""

    def __init__(self, model: Model, pool: KvPool) -> None:
        self.model, self.pool = model, pool
        self.stopwatch = Stopwatch(model.device)

    def forward(
        self, proposals: Sequence[Proposal], captures: Collection[int] = ()
    ) -> TargetOutput:
        """Logits at every root and node; sets each proposal's `row`. Commits nothing.

        proposals must be in ascending order of their sequences' leases' rows.
        """
        spans = [_span(proposal) for proposal in proposals]
        layout = self.model.lay_out(spans, self.pool)
        logits, hidden = self.model.forward(layout, self.pool, captures)
        output = TargetOutput(logits, hidden, starts={}, pending={})
        start = 0
        for proposal, span, row in zip(proposals, spans, layout.logit_starts, strict=True):
            proposal.row = row
            output.starts[proposal.sequence.id] = start
            output.pending[proposal.sequence.id] = len(span.tokens) - len(proposal)
            start += len(span.tokens)
        return output

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:
        """Keep the keys of the pending tokens and the accepted nodes."""
        pending = output.pending[proposal.sequence.id]
        kept = [*range(pending), *(pending + node for node in path.nodes)]
        self.pool.commit(proposal.sequence.lease, kept)


def _span(proposal: Proposal) -> Span:
    lease, tokens = proposal.sequence.lease, proposal.sequence.tokens
    pending = tokens[lease.length :][: proposal.chunk]
    span = Span(lease, pending + proposal.tokens, logits_from=len(pending) - 1)
    if not proposal.is_chain:
        root = len(pending) - 1
        span.parents = [*range(-1, root), *(root + 1 + parent for parent in proposal.parents)]
    return span
