"""Fixtures every room's tests may use."""

import torch
from conftest_bundle import tiny_bundle

__all__ = ["tiny_bundle"]

# The tests' models are tiny: a second thread has nothing to add, and its waiting takes a whole core
# from whatever else runs. Engines and commands set the number they are given.
torch.set_num_threads(1)
