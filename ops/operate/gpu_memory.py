"""The memory of a vLLM engine on one of its GPUs, from the config.json of its models alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from ops.common.boundary import InputError
from workers.target_sizes import kv_numbers, read_config

GIB = 2**30
BLOCK = 16
"""Tokens of a KV block: vLLM's default on GPUs."""
STEP_TOKENS = 2048
"""vLLM's default of max_num_batched_tokens for an engine that another program starts."""
RUNTIME = 2 * GIB
"""Estimate of CUDA's context, NCCL's buffers and CUDA graphs: vLLM's logs show 0.5 to 3.6 GiB."""


def memory_of(
    arguments: Mapping[str, Any], drafters: Mapping[str, Path], gpu_bytes: int
) -> dict[str, int]:
    """Return the bytes of each part on one GPU, and bytes and tokens of the KV cache.

    arguments: of the engine. drafters: folders by part, `draft` or `eagle3`. vLLM measures
    `activations` and `runtime` when it starts; here they are estimates. Raises InputError for a
    model that cannot be planned, and BundleError for a config.json that cannot be read.
    """
    target, gpus = Path(arguments["model"]), int(arguments.get("tensor_parallel_size", 1))
    config, size = _read(target, arguments), 4 if arguments["dtype"] == "float32" else 2
    parts = {"weights": size * sum(_parameters(config, gpus).values())}
    for part, folder in drafters.items():
        parts[part] = size * _drafter(part, _read(folder, arguments), config.hidden_size, gpus)
    parts |= {"activations": _activations(arguments, config, size, gpus), "runtime": RUNTIME}
    share = int(gpu_bytes * arguments["gpu_memory_utilization"])
    parts |= {"kv_cache": share - sum(parts.values()), "not_vllm": gpu_bytes - share}
    cached = 1 if str(arguments.get("kv_cache_dtype")).startswith("fp8") else size
    each = cached * sum(kv_numbers(model, gpus) or 0 for model in (target, *drafters.values()))
    if each == 0:
        raise InputError(f"{target}/config.json: it does not say how large keys and values are")
    blocks = max(0, parts["kv_cache"]) // (BLOCK * each)
    return parts | {"kv_bytes_per_token": each, "kv_tokens": BLOCK * blocks}


def _read(folder: Path, arguments: Mapping[str, Any]) -> Any:
    config = read_config(folder)
    if arguments.get("quantization") or getattr(config, "quantization_config", None):
        raise InputError(f"{folder}: the plan counts weights of 16 and 32 bits, not quantised ones")
    return config.get_text_config()


def _parameters(config: Any, gpus: int) -> dict[str, int]:
    """Return how many numbers of each parameter one of `gpus` GPUs holds, as vLLM divides them."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]

    def pieces(name: str, dims: int) -> int:
        if dims == 1 or name.endswith(".gate.weight"):  # norms, and routers of experts
            return 1
        heads = ".k_" in name or ".v_" in name  # each GPU has at least one
        return min(gpus, int(config.num_key_value_heads)) if heads else gpus

    return {name: one.numel() // pieces(name, one.dim()) for name, one in model.named_parameters()}


def _drafter(part: str, config: Any, target_hidden: int, gpus: int) -> int:
    """Return how many numbers of a drafter one GPU holds."""
    if part == "draft":
        return sum(_parameters(config, gpus).values())
    if part != "eagle3":
        raise InputError(f"{part}: its memory cannot be planned, only that of draft and eagle3")
    vocab, states = config.vocab_size, 3
    config.vocab_size = getattr(config, "draft_vocab_size", None) or vocab
    own = _parameters(config, gpus)
    own.pop("model.embed_tokens.weight")  # the target's
    # The layer reads the token's embedding and the hidden state side by side.
    twice = sum(own[f"model.layers.0.self_attn.{name}_proj.weight"] for name in "qkv")
    fc_and_norm = (states * target_hidden + 1) * config.hidden_size
    ids = 4 * config.vocab_size if config.vocab_size != vocab else 0  # of 8 bytes
    return sum(own.values()) + twice + int(fc_and_norm + ids)


def _activations(arguments: Mapping[str, Any], config: Any, size: int, gpus: int) -> int:
    """Estimate the bytes of a step's largest intermediate results: the hidden states with a layer's
    MLP, and the logits in float32, their probabilities and the sorted ones."""
    speculative = arguments["speculative_config"] or {}
    tokens = int(arguments.get("max_num_batched_tokens", STEP_TOKENS))
    rows = arguments["max_num_seqs"] * (1 + int(speculative.get("num_speculative_tokens", 0)))
    experts = getattr(config, "num_experts_per_tok", None) or 1
    width = experts * getattr(config, "moe_intermediate_size", config.intermediate_size)
    states = size * tokens * (6 * config.hidden_size + 3 * width // gpus)
    return int(states + 4 * 3 * min(tokens, rows) * config.vocab_size)
