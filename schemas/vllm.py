"""What vLLM's engine takes beyond the settings that every engine has."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from schemas.base import Settings


class VllmConfig(Settings):
    """Passed on to vLLM's AsyncEngineArgs under the names it has there, where it has them.

    The target is the bundle's part `target`; drafters and heads are its parts of their names.
    """

    tensor_parallel_size: int = Field(
        default=1, ge=1, description="GPUs of one replica; they come from a placement group"
    )
    distributed_executor_backend: Literal["mp", "ray"] | None = Field(
        default=None,
        description="what starts the processes of tensor parallelism  [default: ray in a served "
        "replica, which has a placement group, else vLLM's own choice]",
    )
    quantization: str | None = Field(
        default=None, description="of the target, as vLLM names it  [default: the checkpoint's own]"
    )
    kv_cache_dtype: str = Field(default="auto", description="such as fp8")
    gpu_memory_utilization: float | None = Field(
        default=None,
        gt=0.0,
        le=1.0,
        description="of one GPU's memory  [default: 0.9 of the method's num_gpus, at most 0.9, so "
        "that replicas with fractions fit one GPU]",
    )
    max_num_batched_tokens: int | None = Field(
        default=None, ge=1, description="tokens of one step  [default: vLLM's own choice]"
    )
    enable_chunked_prefill: bool = True
    enforce_eager: bool = Field(
        default=False, description="no torch.compile and no CUDA graphs: loads sooner, steps longer"
    )
    lora: Path | None = Field(
        default=None, description="an adapter of the target that every request uses"
    )
    max_lora_rank: int = Field(default=16, ge=1)
    trust_remote_code: bool = False
