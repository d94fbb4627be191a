"""Fixtures every room's tests may use."""

import os

import torch
from conftest_bundle import tiny_bundle
from ray._private.ray_constants import RAY_WORKER_NICENESS

__all__ = ["tiny_bundle"]

# The tests' models are tiny: a second thread has nothing to add, and its waiting takes a whole core
# from whatever else runs. Engines and commands set the number they are given.
torch.set_num_threads(1)
# Ray's default, 15, would let the tests of other processes go before what a test waits for.
os.environ[RAY_WORKER_NICENESS] = "0"
