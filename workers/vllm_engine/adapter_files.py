"""LoRA adapters of the target on disk, in PEFT's format."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from schemas import EngineConfig, MethodSpec

FIELD = "engine.lora_adapters"
CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
SHARED_LAYERS = {"embed_tokens", "lm_head"}
"""Layers that drafters share with the target."""
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values of vLLM's max_lora_rank."""


def lora_arguments(adapters: Mapping[str, Path]) -> dict[str, Any]:
    """Return the fields of AsyncEngineArgs for adapters, by name. One step holds all of them.

    Raises ValueError naming the adapter that cannot be served.
    """
    if not adapters:
        return {}
    highest = max(_rank(name, folder) for name, folder in adapters.items())
    return {
        "enable_lora": True,
        "max_loras": len(adapters),
        "max_lora_rank": next(rank for rank in RANKS if rank >= highest),
        # All others stay vLLM's own layers. A wrapped embedding computes with the tokens of the
        # target's batch even if a drafter calls it with its own.
        "lora_target_modules": sorted(set().union(*map(_layers, adapters, adapters.values()))),
    }


def check_adapters(engine: EngineConfig, specs: Sequence[MethodSpec]) -> None:
    """Raise ValueError for an adapter that cannot be read or has a method's name, and for methods
    and servers that take none."""
    adapters = engine.lora_adapters
    if not adapters:
        return
    if engine.openai is not None:
        raise ValueError(f"{FIELD}: engine.openai's servers load their own: leave the field out")
    lora_arguments(adapters)
    for spec in specs:
        if spec.name in adapters:
            raise ValueError(f"{FIELD}.{spec.name}: a method has this name: rename the adapter")
        if spec.engine != "vllm":
            raise ValueError(
                f"{FIELD}: only vLLM's methods answer with adapters, and {spec.name} is of "
                f"{spec.engine}: leave the method or the adapters out"
            )


def _rank(name: str, folder: Path) -> int:
    field, file = f"{FIELD}.{name}", folder / CONFIG
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        rank = max([config["r"], *(config.get("rank_pattern") or {}).values()])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{field}: {file} cannot be read ({error!r}): give the folder of a LoRA adapter in "
            "PEFT's format"
        ) from error
    if not isinstance(rank, int) or not 0 < rank <= RANKS[-1]:
        raise ValueError(f"{field}: {file} says rank {rank!r}: vLLM takes 1 to {RANKS[-1]}")
    return rank


def _layers(name: str, folder: Path) -> set[str]:
    """Return the names of the layers that an adapter changes, such as q_proj."""
    field, file = f"{FIELD}.{name}", folder / WEIGHTS
    try:
        with safe_open(file, "numpy") as weights:
            keys = list(weights.keys())
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{field}: {file} cannot be read: {error}") from error
    layers = {key.partition(".lora_")[0].rpartition(".")[2] for key in keys if ".lora_" in key}
    if SHARED_LAYERS & layers or not layers:
        found = ", ".join(sorted(SHARED_LAYERS & layers)) or "nothing"
        raise ValueError(
            f"{field}: {file} changes {found}: give an adapter of the attention's and the MLP's "
            "layers"
        )
    return layers
