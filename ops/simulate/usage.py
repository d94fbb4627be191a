"""What a simulated replica did."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Usage:
    """Seconds that it was there (starting included), busy, and decoding, and these times the
    sequences in its steps. Where drafts are chosen at every step: seconds of `deciding`, and of the
    sequences in each step, summed, by whom the draft was that was verified."""

    there: float
    busy: float
    decoding: float
    batch: float
    deciding: float = 0.0
    drafted_by: Mapping[str, int] = field(default_factory=dict)
