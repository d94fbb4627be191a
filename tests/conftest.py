"""Fixtures every room's tests may use, and how tests are dealt to processes."""

import os
from pathlib import Path

import pytest
import torch
from conftest_bundle import tiny_bundle
from ray._private.ray_constants import RAY_WORKER_NICENESS

__all__ = ["tiny_bundle"]

# The tests' models are tiny: a second thread has nothing to add, and its waiting takes a whole core
# from whatever else runs. Engines and commands set the number they are given.
torch.set_num_threads(1)
# Ray's default, 15, would let the tests of other processes go before what a test waits for.
os.environ[RAY_WORKER_NICENESS] = "0"

TOGETHER = [Path(__file__).parent / name for name in ("e2e", "training")]
"""Folders whose files share what takes long to make: a Ray, a trained model."""


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A process takes whole files, whose fixtures are made once, or a folder."""
    for item in items:
        folders = (folder for folder in TOGETHER if folder in item.path.parents)
        item.add_marker(pytest.mark.xdist_group(str(next(folders, item.path))))
