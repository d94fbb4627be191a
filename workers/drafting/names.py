"""Who drafted, in the statistics by drafter, where it was no learned drafter: that has the name of
its method."""

LOOK_UPS = "suffix"
"""All that was drafted was foretold."""
NOBODY = "none"
"""Nothing was drafted."""
