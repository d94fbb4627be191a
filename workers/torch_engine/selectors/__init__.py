"""Selectors: which drafter and setting a step uses."""
