"""The cost of one response, and the routing decision that led to it."""

from typing import Literal

from pydantic import ConfigDict, Field

from schemas.base import Message, Schema

WARM_UP = "warm-up"
"""Policy and reason of what a replica measures of itself when it starts."""


Reason = Literal[
    "preferred",
    "load",
    "exploration",
    "constraint",
    "pinned",
    "pinned_cluster",
    "slo",
    "conversation",
    "prediction",
    "failover",
    "starting",
    "degraded",
]


class Decision(Schema):
    """The method that answers, the order of the others, and the reason."""

    method: str
    ranked: tuple[str, ...] = Field(description="all admissible methods, best first")
    cluster: int = Field(ge=-1)
    reason: Reason
    propensity: float = Field(gt=0.0, le=1.0)
    policy: str
    fit_id: str
    table_version: int = Field(ge=0)
    predicted_seconds: dict[str, float] = Field(default_factory=dict)
    predicted_acceptance: dict[str, float] = Field(
        default={},
        description="predicted log acceptance by method, if the table has a regression",
    )
    exploration_seconds: float = Field(
        default=0.0, ge=0.0, description="predicted extra seconds of exploration"
    )
    starts: str | None = Field(
        default=None,
        description="method without a replica that is started because of this decision",
    )


class DrafterStats(Schema):
    """The part of one of several drafters in a response: its steps and tokens."""

    steps: int = Field(ge=0)
    drafted_tokens: int = Field(ge=0)
    accepted_tokens: int = Field(ge=0)


class DecodeStats(Schema):
    """Measurements of one response. Seconds are wall-clock seconds on one clock."""

    request_id: str
    method: str
    temperature: float = Field(ge=0.0)
    prompt_tokens: int = Field(ge=0)
    cached_prompt_tokens: int = Field(
        default=0, ge=0, description="prompt tokens found in the prefix cache"
    )
    output_tokens: int = Field(ge=0)
    context_length: int = Field(ge=0, description="prompt + output tokens at the end")
    target_steps: int = Field(ge=0, description="target forwards that emitted, prefill included")
    drafted_tokens: int = Field(default=0, ge=0)
    accepted_tokens: int = Field(default=0, ge=0)
    drafted_prediction_tokens: int = Field(
        default=0, ge=0, description="draft tokens that the client's prediction holds"
    )
    accepted_prediction_tokens: int = Field(default=0, ge=0)
    drafted_by_position: tuple[int, ...] = ()
    accepted_by_position: tuple[int, ...] = ()
    by_drafter: dict[str, DrafterStats] = Field(
        default={},
        description="if the method chooses a drafter at every step; `grammar` with any method",
    )
    head_versions: dict[str, int] = Field(
        default={},
        description="by part: version of the head that could draft; 0: the bundle's own",
    )
    queue_seconds: float = Field(default=0.0, ge=0.0, description="request to admission")
    first_token_seconds: float = Field(
        default=0.0, ge=0.0, description="request to first emitted token, queue included"
    )
    decode_seconds: float = Field(
        default=0.0, ge=0.0, description="first emitted token to the last one"
    )
    stalled_seconds: float = Field(
        default=0.0, ge=0.0, description="part of decode_seconds spent on other requests' prompts"
    )
    total_seconds: float = Field(default=0.0, ge=0.0, description="request to last token")
    draft_seconds: float = Field(default=0.0, ge=0.0)
    verify_seconds: float = Field(default=0.0, ge=0.0)
    sample_seconds: float = Field(default=0.0, ge=0.0)
    other_seconds: float = Field(default=0.0, ge=0.0)
    mean_batch: float = Field(default=1.0, ge=0.0, description="sequences per step, over its steps")
    batch_by_method: dict[str, float] = Field(
        default={}, description="mean_batch by method; empty: all of this answer's method"
    )
    finish_reason: Literal["stop", "length", "cancelled", "error"]
    looping: bool = Field(
        default=False,
        description="the last 32 tokens are three or more repeats of one n-gram",
    )


class Observation(Message):
    """A DecodeStats with the decision that led to it, from which the feedback actor learns.

    `observation_id` is the request id: the actor counts each once, however often it is sent.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    stats: DecodeStats
    cluster: int = Field(ge=-1, description="-1: not routed by cluster")
    fit_id: str
    table_version: int = Field(ge=0)
    policy: str
    reason: str
    propensity: float = Field(gt=0.0, le=1.0)
    choices: int = Field(
        default=1, ge=1, description="answers to this prompt, which together count as one"
    )
    predicted_acceptance: float | None = Field(
        default=None,
        description="predicted log acceptance of the method, if the table has a regression",
    )
    free_to_end: bool = Field(
        default=True, description="whether the model could end the answer at any token"
    )
    grammar: bool = Field(
        default=False, description="whether a grammar may have forced tokens of the answer"
    )
    predicted_seconds: float = Field(
        default=0.0, ge=0.0, description="of the method, when it was chosen"
    )
    failed: bool = Field(default=False, description="whether its method failed before the end")
    time: float = Field(description="seconds since the epoch, at the ingress")
    vector: bytes | None = Field(
        default=None,
        repr=False,
        description="the prompt's unit vector [d], float16, on the first of its answers",
    )

    @property
    def observation_id(self) -> str:
        return self.stats.request_id
