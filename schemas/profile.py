"""What `specadapt profile` writes, a line or file each; `router.fit.profile` keeps the folder."""

from typing import Any

from pydantic import Field

from schemas.base import Schema
from schemas.routing import MeasuredUnder


class Prompt(Schema):
    id: str
    domain: str = ""
    text: str


class ProfileRow(Schema):
    """One response. Seconds are on one clock, from the request to its last token."""

    prompt_id: str
    method: str
    temperature: float = Field(default=0.0, ge=0.0)
    repeat: int = Field(default=0, ge=0)
    prompt_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=0)
    target_steps: float = Field(
        ge=0.0, description="prefill included; expected ones where acceptance was traced"
    )
    seconds: float = Field(gt=0.0, description="request to last token")
    prefill_seconds: float = Field(ge=0.0, description="request to first token")
    decode_seconds: float = Field(ge=0.0, description="first token to last token")
    mean_batch: float = Field(default=1.0, ge=1.0, description="sequences per decode step")
    looping: bool = False
    answer: str = Field(default="", description="hash of the answer's tokens")


class StepRow(Schema):
    """Mean seconds of one decoding step at a batch size and a context length in tokens."""

    method: str
    batch: int = Field(ge=1)
    context: int = Field(ge=1)
    seconds: float = Field(gt=0.0)
    count: int = Field(ge=1, description="steps behind the mean")
    tokens: float | None = Field(
        default=None, ge=1.0, description="that a sequence gets of a step, where it was counted"
    )


class ProfileMeta(Schema):
    measured_under: MeasuredUnder
    methods: tuple[str, ...] = Field(min_length=1)
    settings_hashes: dict[str, str]
    lossless: dict[str, bool]
    max_tokens: int = Field(ge=1)
    concurrency: int = Field(default=1, ge=1, description="requests of one method in flight")
    seed: int = 0
    provenance: dict[str, Any] = Field(default_factory=dict)
