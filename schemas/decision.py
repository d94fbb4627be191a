"""The router's decision for one prompt."""

from typing import Literal

from pydantic import Field

from schemas.base import Schema

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
    foretold: dict[str, float] = Field(
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
    first_waiting_seconds: float = Field(
        default=0.0, ge=0.0, description="predicted wait of the choice without exploration"
    )
