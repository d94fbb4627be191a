"""A process that only tokenises."""

import subprocess
import sys

ALONE = """
import sys
from workers.bundle import import_without_torch, load_bundle
import_without_torch()
load_bundle("bundles/demo").tokenizer().encode("Hello")
print("torch" in sys.modules)
"""


def test_a_process_that_only_tokenises_loads_no_torch():
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=120, check=True
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
