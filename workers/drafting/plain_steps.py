"""Steps without drafts, now and then."""

EVERY = 32
"""Steps in a row that verify drafts, after which one does not."""


class PlainSteps:
    """Where every step verifies many rows nobody knows what one of few would take: seconds that all
    of them share are taken for those of context and sequences, few rows seem to cost as much as
    many, and ever more is drafted."""

    def __init__(self) -> None:
        self._drafted = 0

    def due(self, drafts: bool) -> bool:
        """A step is about to begin; drafts: whether it would verify any. Whether it should not."""
        self._drafted = self._drafted + 1 if drafts else 0
        if self._drafted <= EVERY:
            return False
        self._drafted = 0
        return True
