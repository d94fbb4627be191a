"""Load tests and long-running experiments."""
