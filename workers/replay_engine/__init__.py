"""Recorded answers given back in their recorded time; for tests and capacity experiments only."""
