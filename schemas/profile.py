"""What `specadapt profile` writes, a line or file each; `router.fit.profile` keeps the folder."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from schemas.base import Schema
from schemas.routing import MeasuredUnder


class Prompt(Schema):
    id: str
    domain: str = ""
    text: str
    token_ids: tuple[int, ...] = Field(
        default=(), description="as the engine got them; none in profiles of before they were kept"
    )


class RecordedTokens(Schema):
    """An answer's tokens, as an engine streamed them.

    drafted: per token, drafted and accepted or the target's own. A target step emits the drafted
    tokens it accepts and then one of its own, so the flags say where each step ended.
    """

    token_ids: tuple[int, ...] = Field(min_length=1)
    drafted: tuple[bool, ...]
    finish_reason: Literal["stop", "length"]

    @model_validator(mode="after")
    def _one_flag_a_token(self) -> Self:
        if len(self.drafted) != len(self.token_ids):
            raise ValueError(f"drafted: {len(self.drafted)} for {len(self.token_ids)} token_ids")
        return self

    def by_step(self) -> tuple[tuple[int, ...], ...]:
        """The tokens that each target step emitted; the prefill's one comes first."""
        ends = [i + 1 for i, drafted in enumerate(self.drafted) if not drafted]
        if self.drafted[-1]:
            ends.append(len(self.drafted))
        return tuple(
            self.token_ids[start:end] for start, end in zip([0, *ends], ends, strict=False)
        )


class ProfileRow(Schema):
    """One answer. Seconds are on one clock, from the request to its last token."""

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
    recorded: RecordedTokens | None = Field(
        default=None, description="none in profiles of before answers were kept"
    )


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
