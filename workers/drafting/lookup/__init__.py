"""Predictions from existing text: where the last tokens occurred before, and what followed."""
