"""Settings of vLLM's engine beyond those of every engine, and of vLLM servers."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from schemas.base import Settings


def _plain(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise ValueError(
            f"{name!r} is no adapter's name: use up to 64 letters, digits, dots, hyphens and _"
        )
    return name


AdapterName = Annotated[str, AfterValidator(_plain)]
"""Stands in a model's name, between colons."""


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
        default=None,
        ge=1,
        description="tokens of one step  [default: vLLM's choice on GPUs; on CPUs prefill_chunk "
        "and every sequence's longest draft]",
    )
    enable_chunked_prefill: bool = True
    enforce_eager: bool = Field(
        default=False, description="no torch.compile and CUDA graphs: loads faster, steps slower"
    )
    lora_adapters: dict[AdapterName, Path] = Field(
        default={},
        description="LoRA adapters of the target, in PEFT's format; `model: BUNDLE:NAME` in a "
        "request chooses one",
    )
    trust_remote_code: bool = False


class OpenAIConfig(Settings):
    """vLLM servers to which requests of vLLM's methods are forwarded."""

    urls: tuple[str, ...] = Field(
        min_length=1,
        description="the servers, such as http://10.0.0.5:8000/v1; each has a replica",
    )
    model: str | None = Field(
        default=None, min_length=1, description="its name on the servers  [default: the bundle's]"
    )
    api_key_file: Path | None = Field(default=None, description="a file with the servers' API key")

    @model_validator(mode="after")
    def _addresses(self) -> Self:
        for url in self.urls:
            if "@" in url:
                raise ValueError("urls: leave user and password out; name a key in api_key_file")
            if not _is_address(url):
                raise ValueError(f"urls: expected an address like http://host:8000/v1, got {url!r}")
        if len(set(self.urls)) < len(self.urls):
            raise ValueError("urls: each server may be named once")
        return self


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        known = parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        return False
    plain = not (parts.query or parts.fragment or " " in url)
    return bool(known) and plain and parts.scheme in ("http", "https") and url.endswith("/v1")
