"""The load that a replica reports a few times a second."""

from pydantic import Field

from schemas.base import Message, Schema


class HeadCounts(Schema):
    """The responses for which a version of a head could draft, as sums over answers since the
    start.

    Steps and tokens are those after a response's first token.
    """

    part: str
    version: int = Field(ge=0, description="0: the bundle's own head")
    answers: int = Field(ge=0)
    steps: int = Field(ge=0)
    tokens: int = Field(ge=0)
    steps_squared: int = Field(ge=0)
    tokens_squared: int = Field(ge=0)
    steps_times_tokens: int = Field(ge=0)


class LoadReport(Message):
    """One replica's load. `outstanding_tokens` estimates the output tokens of its requests that are
    not yet decoded."""

    replica: str
    methods: tuple[str, ...]
    running: int = Field(ge=0)
    waiting: int = Field(ge=0)
    running_by_method: dict[str, int] = Field(default_factory=dict)
    outstanding_tokens: int = Field(ge=0)
    requests: dict[str, int] = Field(
        default_factory=dict,
        description="by id, the tokens that each may still emit; the running before the waiting",
    )
    mean_batch: float = Field(default=0.0, ge=0.0)
    mean_context: float = Field(
        default=0.0,
        ge=0.0,
        description="tokens per sequence of a step, moving average; 0 until measured",
    )
    recent_step_seconds: dict[str, float] = Field(
        default_factory=dict, description="by method, moving average; absent until measured"
    )
    free_slots: int = Field(ge=0, description="free token slots in the KV pool")
    slots_each: int = Field(
        default=0, ge=0, description="slots that every request takes; 0: as many as its tokens"
    )
    drafter_failures: dict[str, int] = Field(
        default_factory=dict,
        description="by drafter, since the start; sequences continue without drafts",
    )
    answers: int = Field(
        default=0, ge=0, description="of all methods since the start; 0 unless drafters are trained"
    )
    heads: tuple[HeadCounts, ...] = Field(
        default=(), description="answers by version of a head; empty unless drafters are trained"
    )
    refused_heads: dict[int, str] = Field(
        default_factory=dict, description="why the replica could not load these versions of heads"
    )
    prefixes: bytes | None = Field(
        default=None,
        exclude=True,
        description="hashes of cached prefixes (schemas.prefixes), the last used ones; null: none "
        "are known. Not shown, since they say whether a guessed prompt was sent",
    )
    healthy: bool = True
    time: float = Field(description="seconds since the epoch")
