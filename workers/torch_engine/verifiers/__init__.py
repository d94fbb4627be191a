"""Verifiers: what is kept of a proposal."""
