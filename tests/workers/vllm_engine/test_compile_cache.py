"""vLLM loads what it has compiled, in a process that is prepared as a worker is."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.vllm
torch = pytest.importorskip("torch")
pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")

WORKER = """
import sys
import torch
from vllm.compilation import decorators
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.platforms import current_platform
from workers.vllm_engine.plugin import register
current_platform.import_kernels()
register()

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
print(None if loaded is None else loaded(model, torch.ones(3)).tolist())
"""


def test_a_compiled_model_is_loaded_from_disk(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(tmp_path / "model")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[3.0, 3.0, 3.0]", done.stderr
