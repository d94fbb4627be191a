"""How far the prompts have drifted from those of the fit, and what was done about it."""

from typing import Literal

from pydantic import Field

from schemas.base import Schema


class DriftReport(Schema):
    """The state of the drift test (`router.drift`) and of the refits."""

    share_farther: float | None = Field(
        default=None, description="the statistic; None until the window is full"
    )
    alarm_above: float | None = Field(
        default=None, description="the statistic that is drift; None without a reference"
    )
    prompts: int = Field(default=0, ge=0, description="of the window, seen since the last refit")
    window: int = Field(ge=1, description="prompts that are compared with the reference")
    reference: Literal["fit", "live"] | None = Field(
        default=None,
        description="the fit's own distances, or the first live prompts'; None while these come in",
    )
    refits: int = Field(default=0, ge=0, description="since the table on disk")
    late_moved: int = Field(
        default=0, ge=0, description="observations of an earlier fit, counted under the present one"
    )
    late_dropped: int = Field(default=0, ge=0, description="observations of fits not known")
