"""An earlier state of what routing has learned."""

from typing import Literal

from pydantic import Field

from schemas.base import Schema


class Snapshot(Schema):
    """What is said of a state that can be gone back to."""

    number: int = Field(ge=1)
    at: str = Field(description="ISO 8601, UTC")
    occasion: Literal["time", "refit", "rollback", "reset"] = Field(
        description="a time has passed; before a refit, a rollback or a reset"
    )
    fit_id: str
    version: int = Field(ge=0, description="of the table it makes")
    clusters: int = Field(ge=1)
    favourites: dict[str, int] = Field(
        description="clusters and temperature bands whose favourite a method is"
    )
