"""Drafting from text that is there already: where the last tokens occurred, and what followed."""
