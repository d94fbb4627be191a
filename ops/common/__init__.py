"""Shared parts of all commands and benchmarks."""
