"""The YAML files of `specadapt train`: what each command reads."""

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from schemas.base import Settings
from schemas.config import EngineConfig

CORES = len(os.sched_getaffinity(0))


class HeadTraining(Settings):
    """The file of `train medusa`, `train eagle` and `train eagle3`."""

    bundle: Path = Field(description="folder of the model family")
    generations: Path = Field(description="answers of the target, from `train generate`")
    start: Path | None = Field(
        None, description="folder of a head to continue from; it sets vocabulary and shape"
    )
    out: Path | None = Field(None, description="folder of the head; default: the bundle's part")
    work: Path | None = Field(
        None, description="folder of the checkpoint; a later run resumes from it"
    )
    positions: int | None = Field(None, ge=1, le=8, description="tokens ahead to train for")
    vocabulary: int | None = Field(
        None, ge=0, description="most frequent answer tokens that the head drafts; 0 for all"
    )
    length: int = Field(512, ge=16, description="tokens per row; longer text is cut")
    cache_gb: float = Field(4.0, ge=0, description="GB of memory for the target's states")
    tokens: int = Field(20_000_000, ge=1, description="training tokens in all")
    minutes: float | None = Field(None, ge=0.1, description="time limit, decay included")
    learning_rate: float = Field(6e-3, ge=0, description="peak rate of matrices; others follow")
    batch_tokens: int = Field(4096, ge=16, description="tokens per batch")
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int = Field(CORES, ge=1, description="CPU threads")
    seed: int = Field(0, ge=0, lt=2**32)

    @model_validator(mode="after")
    def _rows_fill_batches(self) -> "HeadTraining":
        if self.batch_tokens % self.length:
            raise ValueError(f"batch_tokens: {self.batch_tokens} is not a multiple of length")
        return self


class AnswerGeneration(Settings):
    """The file of `train generate`."""

    bundle: Path = Field(description="folder of the model family")
    out: Path = Field(description="file of the answers; those in it are not asked for again")
    prompts: tuple[Path, ...] = Field((), description="files of prompts; default: the shipped ones")
    rows: int = Field(12_000, ge=1, description="most prompts, equal per domain")
    batch: int = Field(32, ge=1, description="sequences per step")
    max_tokens: int = Field(160, ge=1, description="most tokens of an answer")
    dtype: str = "auto"
    threads: int = Field(CORES, ge=1, description="CPU threads")
    seed: int = Field(0, ge=0, lt=2**32)

    def engine(self) -> EngineConfig:
        """Return the settings of the engine that answers."""
        context = 768
        return EngineConfig.model_validate(
            {
                "dtype": self.dtype,
                "threads": self.threads,
                "max_batch": self.batch,
                "kv_slots": self.batch * context,
                "max_context": context,
                "max_waiting": self.rows,
            }
        )
