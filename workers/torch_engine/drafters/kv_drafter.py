"""A drafter with rows of its own."""

from workers.torch_engine.models.drafter_kv_rows import DrafterKvRows
from workers.torch_engine.models.kv_pool import Lease
from workers.torch_engine.sequence import DecodeSequence


class KvDrafter:
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
