"""As many draft tokens as the present batch has room for."""

from collections.abc import Sequence

from workers.batch_schedule import BatchSchedule, whole_numbers
from workers.torch_engine.materials import Materials
from workers.torch_engine.parts import Proposal
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import Path


@register("stop", "batch_schedule")
class ByBatch:
    """gammas[i] levels from batches[i] sequences on; vLLM's num_speculative_tokens_per_batch_size.

    The batch is everything that decodes in the step, whatever its method. 0 drafts nothing:
    drafters with a cache read what they missed when they are asked again.
    """

    def __init__(
        self, _materials: Materials, *, batches: Sequence[int] = (), gammas: Sequence[int] = ()
    ) -> None:
        self._schedule = BatchSchedule(
            whole_numbers(batches, "batches"), whole_numbers(gammas, "gammas")
        )

    def limit(self, sequence: DecodeSequence, batch: int) -> int:  # noqa: ARG002
        """The gamma of this batch."""
        return self._schedule.gamma(batch)

    def goes_on(self, proposal: Proposal) -> bool:  # noqa: ARG002
        """Never stops before the limit."""
        return True

    def observe(self, proposal: Proposal, path: Path) -> None:
        """Nothing to learn."""
