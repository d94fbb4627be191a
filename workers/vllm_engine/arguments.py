"""The arguments of vLLM's AsyncLLM for an EngineConfig and methods."""

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from schemas import EngineConfig, MethodSpec
from workers.bundle import Bundle
from workers.cpu_arithmetic import cpu_dtype
from workers.target_sizes import kv_numbers
from workers.vllm_engine import shared
from workers.vllm_engine.adapter_files import lora_arguments
from workers.vllm_engine.speculation import speculative_config
from workers.vllm_engine.versions import check_arguments

CPU_CHUNK = 256
"""Prompt tokens of a step on CPUs, besides every sequence's longest draft."""
CPU_BLOCK = 128
"""Tokens of a KV block: vLLM's default on CPUs."""
CPU_KV_HEADROOM = 2
"""Factor on KV memory for drafters, whose own KV is seldom larger than the target's."""


def engine_arguments(
    specs: Sequence[MethodSpec], bundle: Bundle, config: EngineConfig
) -> dict[str, Any]:
    """Return fields of AsyncEngineArgs. Raises ValueError and BundleError for what cannot be
    loaded."""
    check_arguments(config.vllm)
    if config.dtype in ("int8", "q4"):
        raise ValueError(
            f"engine.dtype: {config.dtype} is our own engine's; set engine.vllm.quantization"
        )
    dtype = _dtype(config)
    arguments: dict[str, Any] = {
        "model": str(bundle.part("target")),
        "tokenizer": str(tokenizer_folder(bundle)),
        "dtype": dtype,
        "max_model_len": config.max_context,
        "max_num_seqs": config.max_batch,
        "enable_prefix_caching": config.prefix_cache,
        "use_tqdm_on_load": False,
        # Sampling parameters come from the request, not from the checkpoint.
        "generation_config": "vllm",
        "structured_outputs_config": {"backend": "guidance"},
    }
    if not shared.shares(specs):
        arguments["speculative_config"] = speculative_config(specs[0], bundle)
    else:
        arguments |= shared.engine_arguments() | {
            "speculative_config": shared.speculative_config(specs, bundle),
            "additional_config": shared.additional_config(specs, bundle, config.datastore),
        }
    if arguments["speculative_config"] is not None:
        arguments["per_request_spec_decode_metrics"] = "detailed"
    arguments |= lora_arguments(config.lora_adapters)
    if not _on_gpu(config):
        arguments |= _kv_cache(bundle, config, dtype)
        arguments |= _step_tokens(config, arguments["speculative_config"])
    return arguments | config.vllm


def _on_gpu(config: EngineConfig) -> bool:
    return config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available())


def _dtype(config: EngineConfig) -> str:
    """Return `engine.dtype`, or for "auto" bfloat16 on GPUs and the CPU's dtype on CPUs."""
    if config.dtype != "auto":
        return config.dtype
    return "bfloat16" if _on_gpu(config) else cpu_dtype()


def _step_tokens(config: EngineConfig, speculative: Mapping[str, Any] | None) -> dict[str, int]:
    """Return the most tokens of a step on CPUs; nothing where prompts are not read in chunks.

    vLLM's choice is thousands. A CPU reads them for seconds, in which no running request gets a
    token, and vLLM's warm-up reads as many for each model.
    """
    if not config.vllm.get("enable_chunked_prefill", True):
        return {}
    drafted = 0 if speculative is None else speculative["num_speculative_tokens"]
    return {"max_num_batched_tokens": CPU_CHUNK + config.max_batch * (1 + int(drafted))}


def _kv_cache(bundle: Bundle, config: EngineConfig, dtype: str) -> dict[str, Any]:
    """Return the KV cache's size on CPUs, which replicas share: as many slots as configured."""
    blocks = -(-config.kv_slots // CPU_BLOCK)
    size = 4 if dtype == "float32" else 2
    numbers = kv_numbers(bundle.part("target")) or 0  # 0: vLLM decides
    return {
        "block_size": CPU_BLOCK,
        "num_gpu_blocks_override": blocks,
        "kv_cache_memory_bytes": blocks * CPU_BLOCK * numbers * size * CPU_KV_HEADROOM or None,
    }


def tokenizer_folder(bundle: Bundle) -> Path:
    """Return the bundle's tokenizer folder, or a folder of links with the target's config.json
    if it has none: without one vLLM retries for seconds and logs errors."""
    tokenizer, config = bundle.part("tokenizer"), bundle.part("target") / "config.json"
    if (tokenizer / "config.json").is_file():
        return tokenizer
    key = hashlib.sha256(f"{tokenizer.resolve()}\0{config.resolve()}".encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"specadapt-tokenizers-{os.getuid()}" / key
    folder.mkdir(parents=True, exist_ok=True)
    for file in (*tokenizer.iterdir(), config):
        _link(folder / file.name, file.resolve())
    return folder


def _link(link: Path, file: Path) -> None:
    """Create a link atomically, since replicas that start together create the same ones."""
    if not link.exists():
        mine = link.with_name(f"{link.name}.{os.getpid()}")
        mine.symlink_to(file)
        mine.replace(link)
