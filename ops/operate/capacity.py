"""The longest context that a target and this machine's memory allow."""

from pathlib import Path

import psutil

from ops.common.boundary import InputError
from ops.common.settings import DRIVER, Setup, device_of, refuse_too_large
from schemas import EngineConfig
from workers.bundle import load_bundle
from workers.target_sizes import kv_numbers, target_sizes
from workers.weight_files import PACKED, parameter_count

KV_SHARE = 0.25
"""Share of the memory that the weights leave which the keys and values may take."""
LEAST_BYTES = {"q4": 20 / 32, "int8": 34 / 32}
"""Bytes of a parameter in our kernels' layouts; in all other precisions at least two."""
LEAST_SLOTS = 256
FIELD = "engine.max_context (--max-model-len)"


def with_room_for_contexts(setup: Setup) -> EngineConfig:
    """Set the context and the KV slots if the configuration leaves them open: the target's own
    context and slots for full batches, as far as the memory allows.

    Raises InputError if the target or a context that is asked for has no room.
    """
    engine, replicas = setup.engine, 1 if setup.shared else len(setup.methods)
    if engine.openai is not None:
        return engine
    target, on_gpu = load_bundle(setup.bundle).part("target"), _on_gpu(engine)
    weights = 0.0 if on_gpu else weight_bytes(target, engine.dtype)
    refuse_too_large(setup.bundle, weights, replicas)
    own, numbers = target_sizes(target).positions, kv_numbers(target)
    given = engine.model_fields_set
    chosen = "kv_slots" in given and "max_context" not in given
    if chosen or own is None or numbers is None:
        return engine
    context = engine.max_context if "max_context" in given else own
    if context > own:
        raise InputError(f"{FIELD}: the model reads {own:,} tokens at most, not {context:,}")
    room = KV_SHARE * (_free_bytes(on_gpu) - replicas * weights) / replicas
    bytes_each = numbers * (2 if engine.dtype == "bfloat16" else 4)
    slots = engine.kv_slots if "kv_slots" in given else int(room / bytes_each)
    if context > slots and "max_context" in given:
        raise InputError(
            f"{FIELD}: {context:,} tokens take {context * bytes_each / 1e9:.1f} GB of keys "
            f"and values, and there is room for {slots:,} tokens: give fewer, or more "
            "engine.kv_slots"
        )
    if "max_context" not in given:  # full batches come before longer contexts
        usual = min(slots, EngineConfig().max_context)
        context = min(own, max(usual, slots // engine.max_batch))
    wanted = max(LEAST_SLOTS, min(slots, context * engine.max_batch))
    return engine.model_copy(update={"max_context": context, "kv_slots": wanted})


def weight_bytes(target: Path, dtype: str) -> float:
    """Return the least memory that a target's weights take on a CPU in `dtype`."""
    if dtype == "auto" and (target / PACKED).is_file():
        dtype = "q4"
    return parameter_count(target) * LEAST_BYTES.get(dtype, 2.0)


def _on_gpu(engine: EngineConfig) -> bool:
    """Without a driver there is no GPU, and torch, which takes seconds to import, need not be
    asked."""
    return engine.device != "cpu" and DRIVER.exists() and device_of(engine) == "cuda"


def _free_bytes(on_gpu: bool) -> int:
    if on_gpu:
        import torch

        return torch.cuda.mem_get_info()[0]
    return int(psutil.virtual_memory().available)
