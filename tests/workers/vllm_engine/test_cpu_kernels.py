"""What vLLM's CPU build verifies drafts with above temperature 0, in a process that is prepared as
a worker is."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.vllm
torch = pytest.importorskip("torch")
pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")

WORKER = """
import torch
from vllm.platforms import current_platform
from workers.vllm_engine.plugin import register
current_platform.import_kernels()
register()
current_platform.register_triton_kernel_overrides()
from vllm.v1.sample.rejection_sampler import expand_batch_to_tokens
ends = torch.tensor([2, 2, 3, 6], dtype=torch.int32)
for values in (torch.tensor([0.8, 0.5, 0.0, 1.3]), torch.tensor([5, 6, 0, 8], dtype=torch.int32)):
    print(expand_batch_to_tokens(values, ends, 6, replace_from=0, replace_to=1).tolist())
"""


def test_a_worker_repeats_what_requests_ask_for_each_of_their_tokens():
    done = subprocess.run(
        [sys.executable, "-c", WORKER], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    temperatures, top_k = map(json.loads, done.stdout.splitlines()[-2:])
    assert temperatures == pytest.approx([0.8, 0.8, 1.0, 1.3, 1.3, 1.3])
    assert top_k == [5, 5, 1, 8, 8, 8]
