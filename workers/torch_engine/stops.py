"""When drafting stops: after a number of levels, fixed or by the batch size."""

from collections.abc import Sequence

from workers.batch_schedule import BatchSchedule, whole_numbers
from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.interfaces import Proposal
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import Path


@register("stop", "batch_schedule")
class ByBatch:
    """Draft gammas[i] levels from batches[i] sequences on, as vLLM's
    num_speculative_tokens_per_batch_size.

    The batch is all sequences that decode in the step, of any method. 0 drafts nothing; drafters
    with a cache catch up when they draft again.
    """

    def __init__(
        self, _context: BuildContext, *, batches: Sequence[int] = (), gammas: Sequence[int] = ()
    ) -> None:
        self._schedule = BatchSchedule(
            whole_numbers(batches, "batches"), whole_numbers(gammas, "gammas")
        )

    def limit(self, sequence: DecodeSequence, batch: int) -> int:  # noqa: ARG002
        """Return the gamma of this batch."""
        return self._schedule.gamma(batch)

    def goes_on(self, proposal: Proposal) -> bool:  # noqa: ARG002
        """Return True: it stops at the limit only."""
        return True

    def observe(self, proposal: Proposal, path: Path) -> None:
        """Do nothing."""


@register("stop", "fixed")
class Fixed(ByBatch):
    """Draft gamma levels in every step."""

    def __init__(self, context: BuildContext, *, gamma: int = 4) -> None:
        if gamma < 1:
            raise ValueError(f"stop 'fixed': gamma must be at least 1, not {gamma}")
        super().__init__(context, batches=(1,), gammas=(gamma,))
