"""A request to an engine and the pieces of its answer."""

from typing import Literal

from pydantic import Field

from schemas.base import Schema
from schemas.observation import DecodeStats

FinishReason = Literal["stop", "length", "cancelled", "error"]


class SamplingParams(Schema):
    """How tokens are chosen. Temperature 0 is greedy and ignores top_p, top_k and seed."""

    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=0, ge=0, description="0 keeps the whole vocabulary")
    seed: int | None = Field(default=None, description="None draws a fresh seed per request")
    max_tokens: int = Field(default=128, ge=1)
    stop: tuple[str, ...] = Field(default=(), max_length=16)
    ignore_eos: bool = Field(default=False, description="benchmarks only: decode to max_tokens")


class DecodeRequest(Schema):
    """One prompt for one named method of an engine's portfolio."""

    request_id: str = Field(min_length=1)
    method: str
    prompt_token_ids: tuple[int, ...] = Field(min_length=1)
    sampling: SamplingParams = SamplingParams()


class DecodeChunk(Schema):
    """A piece of an answer; the last one carries the finish reason and the statistics."""

    request_id: str
    text: str = Field(description="whole characters only; may be empty")
    token_ids: tuple[int, ...] = ()
    drafted: tuple[bool, ...] = Field(
        default=(), description="per token of this chunk: drafted and accepted, or the target's own"
    )
    finish_reason: FinishReason | None = None
    error: str | None = None
    stats: DecodeStats | None = None
