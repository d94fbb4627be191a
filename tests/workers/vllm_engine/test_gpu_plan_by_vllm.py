"""The plan for GPUs, compared with what vLLM's own functions say of the same engines."""

from pathlib import Path
from typing import Any

import pytest

from ops.operate.gpu_memory import STEP_TOKENS
from ops.operate.gpu_plan import gpu_plan, planned_bundle

pytestmark = pytest.mark.vllm

MODELS = Path(__file__).parents[2] / "model_configs"
ENGINES = {
    "llama-3.1-8b": {"eagle3": "eagle3-llama-3.1-8b"},
    "qwen3-30b-a3b": {},
    "llama-3.1-70b": {"draft": "llama-3.2-1b"},
}
"""Models with their drafter. They span 1, 2 and 4 H100s."""


@pytest.fixture(params=ENGINES)
def planned(request: pytest.FixtureRequest) -> dict[str, Any]:
    given = [f"{part}={MODELS / name}" for part, name in ENGINES[request.param].items()]
    bundle = planned_bundle(str(MODELS / request.param), given, Path())
    [engine] = gpu_plan("nvidia-h100", None, None, bundle)["engines"]
    return engine


@pytest.fixture
def built(planned, resolved, monkeypatch, tmp_path):
    """vLLM's configuration of the planned engine, and its models without weights as the first GPU
    has them."""
    from vllm.config import set_current_vllm_config
    from vllm.config.utils import replace
    from vllm.distributed import parallel_state

    config = resolved(planned["arguments"])
    with set_current_vllm_config(config):
        place = f"file://{tmp_path}/rendezvous"
        parallel_state.init_distributed_environment(1, 0, place, 0, "gloo")
        parallel_state.initialize_model_parallel(1)
        group = parallel_state.get_tp_group()
        monkeypatch.setattr(group, "world_size", int(planned["gpus"]))
        models, own = {"weights": without_weights(config)}, config.speculative_config
        for part in ENGINES[Path(planned["arguments"]["model"]).name]:
            drafting, draft = config, own.draft_model_config
            if part == "draft":  # as vLLM's own proposer does it
                drafting = replace(config, quant_config=None, model_config=draft)
            models[part] = without_weights(drafting, draft, part)
        yield config, models
    parallel_state.destroy_model_parallel()
    parallel_state.destroy_distributed_environment()


def without_weights(config: Any, model_config: Any = None, prefix: str = "") -> Any:
    import torch
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    with torch.device("meta"), set_default_torch_dtype(config.model_config.dtype):
        return initialize_model(config, prefix=prefix, model_config=model_config)


def test_the_plan_is_vllms(planned, built):
    from vllm.config import CUDAGraphMode
    from vllm.v1.attention.backend import AttentionCGSupport
    from vllm.v1.attention.backends.utils import record_kv_cache_layout
    from vllm.v1.core.kv_cache_utils import get_kv_cache_configs

    (config, models), memory = built, planned["memory"]
    for part, model in models.items():
        own = dict(model.named_parameters())
        if part == "eagle3":
            del own["model.embed_tokens.weight"]  # the target's
        assert memory[part] == sum(p.numel() * p.element_size() for p in own.values()), part
    layers = config.compilation_config.static_forward_context
    specs = {
        name: spec
        for name, layer in layers.items()
        if hasattr(layer, "get_kv_cache_spec") and (spec := layer.get_kv_cache_spec(config))
    }
    block = config.cache_config.block_size
    each = sum(spec.page_size_bytes for spec in specs.values()) / block
    assert memory["kv_bytes_per_token"] == each
    assert config.scheduler_config.max_num_batched_tokens == STEP_TOKENS
    record_kv_cache_layout(config.cache_config, "LBNHC")
    [cache] = get_kv_cache_configs(config, [specs], [memory["kv_cache"]])
    assert memory["kv_tokens"] == cache.num_blocks * block
    mode = config.compilation_config.resolve_cudagraph_mode_and_sizes(
        AttentionCGSupport.UNIFORM_BATCH, "FLASH_ATTN", 1 + config.num_speculative_tokens
    )
    assert mode == CUDAGraphMode[planned["cudagraph_mode"]]
