"""Exchange of a drafter's weights while the engine serves, between two of its steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import nn
from vllm.compilation.breakable_cudagraph import BreakableCUDAGraphWrapper
from vllm.config import set_current_vllm_config
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from workers.weight_files import weight_files


def exchange_weights(proposer: Any, target: nn.Module, folder: Path) -> None:
    """Load the weights of another head of the same shapes into a proposer of vLLM's.

    vLLM's layerwise reload keeps the tensors that CUDA graphs and compiled code read, and copies
    into them. Raises whatever vLLM raises; then the drafter may draft nonsense, and the target is
    as before.
    """
    model = proposer.model
    if isinstance(model, BreakableCUDAGraphWrapper):
        model = model.unwrap()
    config = proposer.vllm_config
    weights = {name: w for file in weight_files(folder) for name, w in load_file(file).items()}
    with set_current_vllm_config(config), _without_modules_of(target, model):
        initialize_layerwise_reload(model)
        try:
            model.load_weights(weights.items())
        finally:
            finalize_layerwise_reload(model, config.speculative_config.draft_model_config)
    if "token_map" in weights:
        # Medusa creates it while it loads, so the reload puts the old one back.
        model.token_map.data.copy_(weights["token_map"])


@contextmanager
def _without_modules_of(target: nn.Module, model: nn.Module) -> Iterator[None]:
    """Take the modules that a drafter shares with the target out of it meanwhile: its embedding
    and its LM head where it has none of its own."""
    owned = set(target.modules())
    shared = [
        (parent, name, child)
        for parent in list(model.modules())
        if parent not in owned
        for name, child in list(parent.named_children())
        if child in owned
    ]
    for parent, name, _ in shared:
        delattr(parent, name)
    try:
        yield
    finally:
        for parent, name, child in shared:
            setattr(parent, name, child)
