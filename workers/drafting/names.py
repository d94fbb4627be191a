"""Names in the statistics by drafter. A learned drafter has the name of its method."""

LOOK_UPS = "suffix"
"""All draft tokens were looked up."""
NOBODY = "none"
"""No tokens were drafted."""
GRAMMAR = "grammar"
"""The request's grammar forced all draft tokens."""
