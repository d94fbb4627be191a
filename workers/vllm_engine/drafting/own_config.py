"""vLLM's configuration of one drafter of several."""

import copy
from collections.abc import Mapping
from typing import Any

from vllm.config import SpeculativeConfig, VllmConfig


def own_config(base: VllmConfig, options: Mapping[str, Any]) -> VllmConfig:
    """Return vLLM's configuration with this as its only drafter, around the same target."""
    config = copy.copy(base)
    config.speculative_config = SpeculativeConfig(
        **options,
        target_model_config=base.model_config,
        target_parallel_config=base.parallel_config,
    )
    # A draft model reads one token more of each sequence than the target; vLLM's scheduler
    # leaves room for it only where it is the engine's own method.
    extra = config.speculative_config.max_num_new_slots_for_drafting
    if extra:
        config.scheduler_config = copy.copy(base.scheduler_config)
        config.scheduler_config.max_num_batched_tokens += extra * base.scheduler_config.max_num_seqs
        # The copy shares the registry of layers.
        config.compilation_config = copy.copy(base.compilation_config)
        config.compilation_config.compile_ranges_endpoints = [
            *base.compilation_config.compile_ranges_endpoints,
            config.scheduler_config.max_num_batched_tokens,
        ]
    return config
