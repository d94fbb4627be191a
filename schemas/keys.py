"""API keys, stored as hashes, with their owners and limits."""

import hashlib
from collections import Counter
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from schemas.base import Settings

Priority = Literal["high", "normal", "low"]
Isolation = Literal["none", "tenant", "key"]


class Limits(Settings):
    """Limits at each ingress; None is no limit."""

    requests_per_minute: float | None = Field(default=None, gt=0.0)
    tokens_per_minute: float | None = Field(
        default=None,
        gt=0.0,
        description="of prompts and answers; a started answer is always completed",
    )
    concurrent_requests: int | None = Field(default=None, ge=1)


class ApiKey(Settings):
    """One key. sha256: hash of the key's UTF-8 text; the key itself is not stored."""

    name: str = Field(min_length=1)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    tenant: str | None = Field(
        default=None, description="the tenant whose limits it shares  [default: none]"
    )
    priority: Priority = Field(
        default="normal", description="under load, low is refused first and high last"
    )
    admin: bool = Field(default=False, description="may use /admin, and nothing else")
    teaches: bool | None = Field(
        default=None,
        description="true: drafters may be trained on its prompts and answers, if "
        "feedback.drafter_training is set; false: its prompts' vectors are not stored either and "
        "do not move the clusters; left out: only the vectors are used",
    )
    limits: Limits = Limits()

    @field_validator("sha256")
    @classmethod
    def _of_a_key(cls, value: str) -> str:
        if value == hashlib.sha256().hexdigest():
            raise ValueError(
                "this is the hash of an empty text, which every client without a key presents"
            )
        return value


class KeyRing(Settings):
    """All accepted keys. tenants: limits that the keys of a tenant share."""

    keys: tuple[ApiKey, ...]
    tenants: dict[str, Limits] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for field in ("name", "sha256"):
            counts = Counter(getattr(key, field) for key in self.keys)
            twice = [value for value, count in counts.items() if count > 1]
            if twice:
                raise ValueError(f"keys: {field} {twice[0]!r} is there twice")
        unknown = {key.tenant for key in self.keys} - self.tenants.keys() - {None}
        if unknown:
            raise ValueError(f"keys: tenant {min(map(str, unknown))!r} is not among tenants")
        return self
