"""Acceptance traces: every method drafts at every position of an answer that is known already."""
