"""Benchmarks of decoding, steps and the service."""
