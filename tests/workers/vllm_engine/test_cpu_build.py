"""What our plugin repairs in vLLM's CPU build, in a process that is prepared as a worker is."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.vllm

WORKER = """
import json
import sys
import torch
from vllm.platforms import current_platform
from workers.vllm_engine.plugin import register
current_platform.import_kernels()
register()
current_platform.register_triton_kernel_overrides()
found = {}

from vllm.v1.sample.rejection_sampler import expand_batch_to_tokens
ends = torch.tensor([2, 2, 3, 6], dtype=torch.int32)
for values in (torch.tensor([0.8, 0.5, 0.0, 1.3]), torch.tensor([5, 6, 0, 8], dtype=torch.int32)):
    expanded = expand_batch_to_tokens(values, ends, 6, replace_from=0, replace_to=1)
    found[str(values.dtype)] = expanded.tolist()

from vllm.lora.ops.torch_ops import sgmv_expand, sgmv_expand_slice
states, last = torch.ones(3, 1), torch.tensor([[[1.0]], [[5.0]]])
batch = torch.tensor([0, 2]), torch.tensor([2, 1]), torch.tensor([-1, 0]), 2, 2, 3
for add, place in ((sgmv_expand, ()), (sgmv_expand_slice, (0, 1))):
    output = torch.full((3, 1), 0.5)
    add(states, last, output, *batch, *place, True)
    found[add.__name__] = output[:, 0].tolist()

from vllm.compilation import decorators
from vllm.config import VllmConfig

class Model(torch.nn.Module):
    _is_encoder = False

    def forward(self, states):
        return states * 2 + 1

model = Model()
model.vllm_config = VllmConfig()
model.compilation_config = model.vllm_config.compilation_config
compiled = torch.compile(model, fullgraph=True).forward.aot_compile(((torch.ones(3),), {}))
compiled.save_compiled_function(sys.argv[1])
loaded = decorators._try_load_aot_compiled_fn(model, sys.argv[1])
found["loaded"] = loaded and loaded(model, torch.ones(3)).tolist()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    file = tmp_path_factory.mktemp("compiled") / "model"
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_each_token_has_its_requests_temperature_and_top_k(found):
    assert found["torch.float32"] == pytest.approx([0.8, 0.8, 1.0, 1.3, 1.3, 1.3])
    assert found["torch.int32"] == [5, 5, 1, 8, 8, 8]


def test_tokens_of_no_adapter_get_none(found):
    """Two of them, and one of the first of two adapters."""
    assert found["sgmv_expand"] == found["sgmv_expand_slice"] == [0.5, 0.5, 1.5]


def test_a_compiled_model_is_loaded_from_disk(found):
    assert found["loaded"] == [3.0, 3.0, 3.0]
