"""An earlier state of the learned routing."""

from typing import Literal

from pydantic import Field

from schemas.base import Schema


class Snapshot(Schema):
    """A state that can be restored."""

    number: int = Field(ge=1)
    at: str = Field(description="ISO 8601, UTC")
    occasion: Literal["time", "refit", "rollback", "reset"] = Field(
        description="time: the interval has passed; else: made before this event"
    )
    fit_id: str
    version: int = Field(ge=0, description="of its table")
    clusters: int = Field(ge=1)
    favourites: dict[str, int] = Field(
        description="by method, the clusters and temperature bands whose favourite it is"
    )
