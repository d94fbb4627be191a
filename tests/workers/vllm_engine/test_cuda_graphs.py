"""Which CUDA graphs vLLM's first runner would have for the shipped configurations.

A stand-in platform has graphs; vLLM resolves the rest as it does on a GPU.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.artifacts import portfolios
from deployments.configuration import validated
from workers.bundle import Bundle
from workers.vllm_engine.arguments import engine_arguments

pytestmark = pytest.mark.vllm

CONFIGS = Path(__file__).parents[3] / "configs"
FOR_GPUS = ("llama-3.1-8b", "llama-3.3-70b", "qwen3-8b")


@pytest.fixture
def shipped(bundle: Bundle, request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Return the arguments of a configuration's engines, with the demo bundle for its models."""
    text = (CONFIGS / f"{request.param}.yaml").read_text(encoding="utf-8")
    app = validated(yaml.safe_load(text))
    # The demo models have two heads and a short context.
    vllm = app.engine.vllm | {"tensor_parallel_size": 1}
    engine = app.engine.model_copy(update={"max_context": 512, "vllm": vllm})
    return [engine_arguments(specs, bundle, engine) for specs in portfolios(app)]


@pytest.mark.parametrize("shipped", FOR_GPUS, indirect=True)
def test_every_shipped_engine_has_full_graphs(shipped, resolved):
    from vllm.config import CUDAGraphMode
    from vllm.v1.attention.backend import AttentionCGSupport
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

    for arguments in shipped:
        config = resolved(arguments)
        length = 1 + config.num_speculative_tokens
        # As the runner does with the attention backends of NVIDIA's GPUs.
        mode = config.compilation_config.resolve_cudagraph_mode_and_sizes(
            AttentionCGSupport.UNIFORM_BATCH, "FLASH_ATTN", length
        )
        assert mode == CUDAGraphMode.FULL_AND_PIECEWISE, arguments["speculative_config"]
        dispatcher = CudagraphDispatcher(config)
        dispatcher.initialize_cudagraph_keys(mode, length)
        whole, _ = dispatcher.dispatch(4 * length, uniform_decode=True)
        mixed, _ = dispatcher.dispatch(4 * length, uniform_decode=False)
        assert (whole, mixed) == (CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE)


def test_a_request_that_is_cached_but_for_one_token_gets_no_void_drafts(monkeypatch):
    """vLLM pads it unless there is a schedule, which costs full graphs if its configuration has
    it."""
    from vllm.v1.core.sched.scheduler import Scheduler

    from workers.vllm_engine.drafting.scheduler import SharedScheduler

    def parts(self: Any) -> None:
        self.num_spec_tokens, self.max_num_running_reqs, self.dynamic_sd_lookup = 5, 3, None

    monkeypatch.setattr(Scheduler, "__init__", parts)
    assert SharedScheduler().dynamic_sd_lookup == [5, 5, 5, 5]
    assert "dynamic_sd_lookup" in Scheduler.schedule.__code__.co_names
