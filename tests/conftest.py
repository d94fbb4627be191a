"""Fixtures every room's tests may use."""

from conftest_bundle import tiny_bundle

__all__ = ["tiny_bundle"]
