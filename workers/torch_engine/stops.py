"""When drafting stops: after a number of levels, fixed or by the batch size."""

from bisect import bisect_right
from collections.abc import Sequence

from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.interfaces import Proposal
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence


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
        named = "stop 'batch_schedule'"
        if not batches or batches[0] != 1:
            raise ValueError(
                f"{named}: batches must begin with 1, so that every batch has a number of draft "
                f"tokens, not {list(batches)}"
            )
        if list(batches) != sorted(set(batches)):
            raise ValueError(f"{named}: batches must rise, unlike {list(batches)}")
        if len(gammas) != len(batches):
            raise ValueError(
                f"{named}: give a gamma for each of the {len(batches)} batches, not {list(gammas)}"
            )
        if min(gammas) < 0:
            raise ValueError(f"{named}: gammas must be at least 0, unlike {list(gammas)}")
        self._batches, self._gammas = batches, gammas

    def gamma(self, batch: int) -> int:
        """Return the draft tokens of one sequence in a step of `batch` sequences."""
        return self._gammas[bisect_right(self._batches, batch) - 1]

    def limit(self, sequence: DecodeSequence, batch: int) -> int:  # noqa: ARG002
        """Return the gamma of this batch."""
        return self.gamma(batch)

    def goes_on(self, proposal: Proposal) -> bool:  # noqa: ARG002
        """Return True: it stops at the limit only."""
        return True


@register("stop", "fixed")
class Fixed(ByBatch):
    """Draft gamma levels in every step."""

    def __init__(self, context: BuildContext, *, gamma: int = 4) -> None:
        if gamma < 1:
            raise ValueError(f"stop 'fixed': gamma must be at least 1, not {gamma}")
        super().__init__(context, batches=(1,), gammas=(gamma,))
