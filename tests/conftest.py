"""Fixtures every room's tests may use, and how tests are dealt to processes."""

import os

import pytest
import torch
from conftest_bundle import tiny_bundle
from hypothesis import settings
from ray._private.ray_constants import RAY_WORKER_NICENESS
from xdist.scheduler import LoadScopeScheduling

__all__ = ["tiny_bundle"]

# The tests' models are tiny: a second thread has nothing to add, and its waiting takes a whole core
# from whatever else runs. Engines and commands set the number they are given.
torch.set_num_threads(1)
# Ray's default, 15, would let the tests of other processes go before what a test waits for.
os.environ[RAY_WORKER_NICENESS] = "0"
# How long an example takes depends on the machine. The examples are the same in every run, so that
# a run fails by what has changed; --hypothesis-profile=explore draws new ones.
settings.register_profile("specadapt", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("specadapt")

TOGETHER = ("tests/e2e/", "tests/training/", "tests/workers/vllm_engine/one_engine/")
"""Folders whose files share what takes long to make and is one's own: a Ray, a trained model, an
engine."""


class Dealing(LoadScopeScheduling):
    """A process takes a whole file, whose fixtures are made once, or one of these folders."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return next((folder for folder in TOGETHER if file.startswith(folder)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log) -> Dealing:
    return Dealing(config, log)
