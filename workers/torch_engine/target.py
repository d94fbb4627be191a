"""The target model with its KV pool: one forward over every sequence's tree."""

import logging
from collections.abc import Collection, Sequence
from statistics import median

import torch

from workers.drafting.step_costs import StepCosts
from workers.stopwatch import Stopwatch
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.models.kv_pool import KvPool
from workers.torch_engine.models.layout import Span
from workers.torch_engine.models.model import Model
from workers.torch_engine.tree import Path

log = logging.getLogger(__name__)

MEASURED_ROWS = (*range(1, 18), 20, 24, 25, 32, 33, 40, 48, 64, 96, 128)
"""Seconds need not rise with rows: kernels change after 4, 8 or 16 of them."""
REPEATS = 3
JOINT_FACTOR = 2.0
"""Prompts are read together while a forward takes up to so many times one token's. Two prompts
of n tokens read together have their mean first token after f(2n), one after the other after 1.5
f(n)."""


class Target:
    """Verify proposals: the pending tokens and tree nodes of all sequences in one forward."""

    def __init__(self, model: Model, pool: KvPool) -> None:
        self.model, self.pool = model, pool
        self.stopwatch = Stopwatch(model.device)
        self.costs = StepCosts()

    def forward(
        self, proposals: Sequence[Proposal], captures: Collection[int] = ()
    ) -> TargetOutput:
        """Return logits at every root and node, and set each proposal's `row`. Commit nothing.

        proposals must be in ascending order of their sequences' leases' rows.
        """
        spans = [_span(proposal) for proposal in proposals]
        layout = self.model.lay_out(spans, self.pool)
        logits, hidden = self.model.forward(layout, self.pool, captures)
        output = TargetOutput(logits, hidden, starts={}, pending={})
        start = 0
        for proposal, span, row in zip(proposals, spans, layout.logit_starts, strict=True):
            proposal.row = row + len(span.tokens) - len(proposal) - 1 - span.logits_from
            output.starts[proposal.sequence.id] = start
            output.pending[proposal.sequence.id] = len(span.tokens) - len(proposal)
            start += len(span.tokens)
        return output

    def measure_costs(self) -> None:
        """Time forwards of one sequence by rows, before serving. The least of several rounds
        counts: other work disturbs it least."""
        fitting = [rows for rows in MEASURED_ROWS if rows <= self.pool.capacity]
        rounds = [[self._measured(rows) for rows in fitting] for _ in range(REPEATS)]
        for rows, taken in zip(fitting, zip(*rounds, strict=True), strict=True):
            self.costs.measured(rows, min(taken))

    def choose_threads(self, most: int) -> None:
        """Make torch use `most` threads, or one fewer if that is faster now.

        The threads wait for each other in every operator, so a process that keeps one of their
        cores busy slows all of them down. On an idle machine `most` is faster.
        """
        counts = (most, most - 1)
        taken: dict[int, list[float]] = {count: [] for count in counts}
        for count in counts * REPEATS:
            torch.set_num_threads(count)
            taken[count].append(self._usual(1))
        all_threads, fewer = (median(taken[count]) for count in counts)
        if fewer >= all_threads:
            torch.set_num_threads(most)
        else:
            log.warning(
                "engine.threads: a forward takes %.1f ms with %d threads and %.1f ms with %d, so "
                "decoding uses %d: other processes keep the cores busy",
                *(1000 * all_threads, most, 1000 * fewer, most - 1, most - 1),
            )

    def works(self) -> bool:
        """Return whether a forward works that computes nothing of any request. Takes a free row."""
        try:
            self._measured(1)
        except Exception:
            log.exception("a forward without a request fails too")
            return False
        return True

    def joint_rows(self, most: int) -> int:
        """Return how many prompt tokens, up to `most`, are best read in one forward here."""
        alone, rows = self._usual(1), 1
        while 2 * rows <= most and self._usual(2 * rows) <= JOINT_FACTOR * alone:
            rows *= 2
        return rows

    def _usual(self, rows: int) -> float:
        return median(self._measured(rows) for _ in range(REPEATS))

    def _measured(self, rows: int) -> float:
        """Return the seconds of a forward of so many tokens of one sequence."""
        lease = self.pool.acquire()
        try:
            layout = self.model.lay_out([Span(lease, [0] * rows, logits_from=0)], self.pool)
            self.stopwatch.start()
            logits, _ = self.model.forward(layout, self.pool, ())
            self.stopwatch.stop()
            logits[0, 0].item()
            return self.stopwatch.seconds()
        finally:
            self.pool.release(lease)

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:
        """Keep the keys of the pending tokens and the accepted nodes."""
        pending = output.pending[proposal.sequence.id]
        kept = [*range(pending), *(pending + node for node in path.nodes)]
        self.pool.commit(proposal.sequence.lease, kept)


def _span(proposal: Proposal) -> Span:
    lease, tokens = proposal.sequence.lease, proposal.sequence.tokens
    pending = tokens[lease.length :][: proposal.chunk]
    logits_from = 0 if proposal.sequence.reads_prompt else len(pending) - 1
    span = Span(lease, pending + proposal.tokens, logits_from=logits_from)
    if not proposal.is_chain:
        root = len(pending) - 1
        span.parents = [*range(-1, root), *(root + 1 + parent for parent in proposal.parents)]
    return span
