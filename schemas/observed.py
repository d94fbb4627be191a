"""The predicted gain of routing on traffic that the default method answered."""

from pydantic import Field

from schemas.base import Schema


class ObservedReport(Schema):
    """The answers since `router.observe` was set.

    Predicted seconds are the measured ones, times the ratio of both methods' predictions.
    """

    answers: int = Field(default=0, ge=0)
    elsewhere: dict[str, int] = Field(
        default={}, description="answers that routing would have sent to another method, by method"
    )
    served_seconds: float = Field(default=0.0, ge=0.0, description="measured")
    routed_seconds: float = Field(default=0.0, ge=0.0, description="predicted")
    speedup: float | None = Field(
        default=None, description="served over routed seconds; None without an answer"
    )
    standard_error: float | None = Field(
        default=None, description="of the speedup; None under two answers"
    )
    served_over_predicted: float | None = Field(
        default=None, description="measured over predicted seconds of the method that answered"
    )
