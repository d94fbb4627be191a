"""What one answer cost, and under which routing decision it was produced."""

from typing import Literal

from pydantic import ConfigDict, Field

from schemas.base import Schema


class DrafterStats(Schema):
    """What one of several drafters did for an answer: its steps, and tokens by level as in
    DecodeStats."""

    steps: int = Field(ge=0)
    drafted_tokens: int = Field(ge=0)
    accepted_tokens: int = Field(ge=0)


class DecodeStats(Schema):
    """What the engine measured for one answer. Seconds are wall-clock seconds on one clock."""

    request_id: str
    method: str
    temperature: float = Field(ge=0.0)
    prompt_tokens: int = Field(ge=0)
    cached_prompt_tokens: int = Field(
        default=0, ge=0, description="of the prompt's, those read for another request before"
    )
    output_tokens: int = Field(ge=0)
    context_length: int = Field(ge=0, description="prompt + output tokens at the end")
    target_steps: int = Field(ge=0, description="target forwards that emitted, prefill included")
    drafted_tokens: int = Field(default=0, ge=0)
    accepted_tokens: int = Field(default=0, ge=0)
    drafted_by_position: tuple[int, ...] = ()
    accepted_by_position: tuple[int, ...] = ()
    by_drafter: dict[str, DrafterStats] = Field(
        default={}, description="where the method chooses a drafter for every step"
    )
    queue_seconds: float = Field(default=0.0, ge=0.0, description="request to admission")
    first_token_seconds: float = Field(
        default=0.0, ge=0.0, description="request to first emitted token, queue included"
    )
    decode_seconds: float = Field(
        default=0.0, ge=0.0, description="first emitted token to the last one"
    )
    stalled_seconds: float = Field(
        default=0.0, ge=0.0, description="of decode_seconds: other requests' prompts were read"
    )
    total_seconds: float = Field(default=0.0, ge=0.0, description="request to last token")
    draft_seconds: float = Field(default=0.0, ge=0.0)
    verify_seconds: float = Field(default=0.0, ge=0.0)
    sample_seconds: float = Field(default=0.0, ge=0.0)
    other_seconds: float = Field(default=0.0, ge=0.0)
    mean_batch: float = Field(default=1.0, ge=0.0, description="sequences per step, over its steps")
    batch_by_method: dict[str, float] = Field(
        default={}, description="mean_batch by method; empty: all are of this answer's"
    )
    finish_reason: Literal["stop", "length", "cancelled", "error"]
    looping: bool = Field(
        default=False,
        description="the last 32 tokens are three or more repeats of one n-gram",
    )


class Instead(Schema):
    """What routing would have chosen where it is only observed. Seconds are those predicted of the
    request under the load that it met."""

    method: str
    predicted_seconds: float = Field(gt=0.0)
    served_predicted_seconds: float = Field(gt=0.0, description="of the method that answered")


class Observation(Schema):
    """A DecodeStats together with the decision that led to it; what the feedback actor learns from.

    `observation_id` is the request id: the actor counts each once, however often it is sent.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    stats: DecodeStats
    cluster: int = Field(ge=-1, description="-1: not routed by a cluster")
    fit_id: str
    table_version: int = Field(ge=0)
    policy: str
    reason: str
    propensity: float = Field(gt=0.0, le=1.0)
    choices: int = Field(
        default=1, ge=1, description="answers to this prompt: together they count as one"
    )
    foretold: float | None = Field(
        default=None,
        description="of the method's log acceptance by the table's regression, where it has one",
    )
    instead: Instead | None = Field(
        default=None, description="where the default method answered and routing is only observed"
    )
    time: float = Field(description="seconds since the epoch, at the ingress")
    vector: bytes | None = Field(
        default=None,
        repr=False,
        description="the prompt's unit vector [d], float16, on the first of a prompt's answers",
    )

    @property
    def observation_id(self) -> str:
        return self.stats.request_id
