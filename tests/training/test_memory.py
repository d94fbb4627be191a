"""Freed memory stays in the process, so that the kernel need not map it anew."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from training.memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
large = np.ones(1 << 23)
for _ in range(4):
    _ = large * 2.0
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    _ = large * 2.0
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_a_large_array_reuses_the_pages_of_the_last() -> None:
    kept, mapped = (
        int(subprocess.check_output([sys.executable, "-c", FAULTS, mode], text=True))
        for mode in ("keep", "map")
    )
    assert kept < mapped / 2
