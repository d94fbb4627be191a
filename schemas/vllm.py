"""Settings of vLLM's engine beyond those of every engine."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from schemas.base import Settings


class VllmConfig(Settings):
    """Settings that are passed to vLLM's AsyncEngineArgs under its own names.

    The bundle's parts are the target, drafters and heads of the same names.
    """

    tensor_parallel_size: int = Field(
        default=1, ge=1, description="GPUs of one replica, reserved as a placement group"
    )
    distributed_executor_backend: Literal["mp", "ray"] | None = Field(
        default=None,
        description="starts the processes of tensor parallelism  [default: ray in served replicas, "
        "which have a placement group, else vLLM's choice]",
    )
    quantization: str | None = Field(
        default=None, description="of the target, by vLLM's name  [default: the checkpoint's]"
    )
    kv_cache_dtype: str = Field(default="auto", description="such as fp8")
    gpu_memory_utilization: float | None = Field(
        default=None,
        gt=0.0,
        le=1.0,
        description="share of one GPU's memory  [default: 0.9 x num_gpus, at most 0.9, so that "
        "replicas with fractions fit one GPU]",
    )
    max_num_batched_tokens: int | None = Field(
        default=None, ge=1, description="tokens of one step  [default: vLLM's choice]"
    )
    enable_chunked_prefill: bool = True
    enforce_eager: bool = Field(
        default=False, description="no torch.compile and CUDA graphs: loads faster, steps slower"
    )
    lora: Path | None = Field(
        default=None, description="an adapter of the target that every request uses"
    )
    max_lora_rank: int = Field(default=16, ge=1)
    trust_remote_code: bool = False
