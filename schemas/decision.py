"""The router's answer for one prompt."""

from typing import Literal

from pydantic import Field

from schemas.base import Schema

Reason = Literal[
    "favourite",
    "load",
    "exploration",
    "constraint",
    "pinned",
    "pinned_cluster",
    "observed",
    "conversation",
    "failover",
    "starting",
    "degraded",
]


class Decision(Schema):
    """Which method answers, what comes next if it cannot, and why."""

    method: str
    ranked: tuple[str, ...] = Field(description="all admissible methods, best first")
    cluster: int = Field(ge=-1)
    reason: Reason
    propensity: float = Field(gt=0.0, le=1.0)
    policy: str
    fit_id: str
    table_version: int = Field(ge=0)
    predicted_seconds: dict[str, float] = Field(default_factory=dict)
    foretold: dict[str, float] = Field(
        default={},
        description="log acceptance by the table's regression, by method, where it has one",
    )
    exploration_seconds: float = Field(
        default=0.0, ge=0.0, description="predicted, over the choice made without exploring"
    )
    starts: str | None = Field(
        default=None, description="the favourite, where it has no replica yet and gets one now"
    )
    instead_of: str | None = Field(
        default=None, description="what would have answered if routing were not only observed"
    )
    first_waiting_seconds: float = Field(
        default=0.0, ge=0.0, description="that choice's predicted wait for a place, on exploring"
    )
