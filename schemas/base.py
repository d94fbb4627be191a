"""The settings every schema shares."""

from pydantic import BaseModel, ConfigDict


class Schema(BaseModel):
    """Immutable, and strict about names: an unknown field is an error that names it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
