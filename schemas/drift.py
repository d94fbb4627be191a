"""How far prompts have drifted from those of the fit, and the refits since."""

from typing import Literal

from pydantic import Field

from schemas.base import Schema


class DriftReport(Schema):
    """The state of the drift test (`router.drift`) and of the refits."""

    share_farther: float | None = Field(
        default=None, description="the statistic; None until the window is full"
    )
    alarm_above: float | None = Field(
        default=None, description="threshold of the statistic; None without a reference"
    )
    prompts: int = Field(default=0, ge=0, description="prompts of the window since the last refit")
    window: int = Field(ge=1, description="prompts that are compared with the reference")
    reference: Literal["fit", "live"] | None = Field(
        default=None,
        description="distances of the fit or of the first live prompts; None until complete",
    )
    refits: int = Field(default=0, ge=0, description="refits since the table on disk")
    late_moved: int = Field(
        default=0,
        ge=0,
        description="observations of an earlier fit that were moved to the present one",
    )
    late_dropped: int = Field(default=0, ge=0, description="observations of unknown fits")
