"""What a drafter has to read before it drafts, because it sat out."""

from collections.abc import Sequence
from dataclasses import dataclass

from workers.drafting.draft_seconds import Draft

CATCH_UP = 16
"""Missing tokens of a sequence from which on they are read in a forward of their own, so that one
long prompt does not pad the whole batch; fewer are read with the first draft token."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Of so many sequences `late` have tokens that are read before, so many all together."""

    sequences: int
    late: int
    missing: int

    @classmethod
    def of(cls, missed: Sequence[int]) -> "Backlog":
        """Of the tokens that the drafter missed of each sequence."""
        much = [tokens for tokens in missed if tokens >= CATCH_UP]
        return cls(len(missed), len(much), sum(much))

    def whole(self, levels: float) -> Draft:
        """Drafting for all of them, with all that is read."""
        return Draft(levels, self.sequences, self.late, self.missing)

    def part(self, levels: float, sequences: int) -> Draft:
        """Drafting for some of them, which ones is not known."""
        share = sequences / self.sequences
        return Draft(levels, sequences, share * self.late, share * self.missing)
