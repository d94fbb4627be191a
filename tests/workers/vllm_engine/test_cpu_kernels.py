"""What kernels of vLLM's CPU build compute for verification and LoRA adapters, in a process that is
prepared as a worker is."""

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
from vllm.lora.ops.torch_ops import sgmv_expand, sgmv_expand_slice
states, last = torch.ones(3, 1), torch.tensor([[[1.0]], [[5.0]]])
batch = torch.tensor([0, 2]), torch.tensor([2, 1]), torch.tensor([-1, 0]), 2, 2, 3
for add, place in ((sgmv_expand, ()), (sgmv_expand_slice, (0, 1))):
    output = torch.full((3, 1), 0.5)
    add(states, last, output, *batch, *place, True)
    print(output[:, 0].tolist())
"""


def test_a_worker_does_with_each_token_what_its_request_asks_for():
    done = subprocess.run(
        [sys.executable, "-c", WORKER], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    temperatures, top_k, *added = map(json.loads, done.stdout.splitlines()[-4:])
    assert temperatures == pytest.approx([0.8, 0.8, 1.0, 1.3, 1.3, 1.3])
    assert top_k == [5, 5, 1, 8, 8, 8]
    assert added == 2 * [[0.5, 0.5, 1.5]], "two tokens of no adapter, one of the first of two"
