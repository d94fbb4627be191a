"""Versions of a bundle's heads, and which of them are in service."""

from pydantic import Field

from schemas.base import Schema
from schemas.tuning import HeadPart, Verdict


class SampleSpan(Schema):
    """The samples that a head was trained on, without their text."""

    answers: int = Field(ge=1)
    tokens: int = Field(ge=1, description="of prompts and answers")
    first: float = Field(description="time of the oldest sample, seconds since the epoch")
    last: float


class HeadOrigin(Schema):
    """Where a version of a head comes from."""

    part: HeadPart
    parent: int = Field(
        ge=0, description="version that it was tuned from; 0: the bundle's own, if it has one"
    )
    created: float = Field(description="seconds since the epoch")
    samples: SampleSpan
    verdict: Verdict = Field(description="comparison with the parent on held samples")


class HeadVersion(HeadOrigin):
    """A version in the store. Versions of all parts share one sequence of numbers."""

    number: int = Field(ge=1)


class Canary(Schema):
    """A version that drafts for a share of the requests."""

    number: int = Field(ge=1)
    share: float = Field(gt=0.0, lt=1.0)


class PastRounds(Schema):
    """The outcome of a part's rounds of training."""

    seen: float = Field(default=0.0, description="time of the newest sample of the last round")
    in_vain: int = Field(default=0, ge=0, description="rounds in a row without a better head")


class HeadsInForce(Schema):
    """Which versions serve. A part without a number serves the bundle's own head,
    if it has one."""

    revision: int = Field(default=0, ge=0, description="increases with every change")
    numbers: dict[HeadPart, int] = Field(default={}, description="version in force by part")
    canaries: dict[HeadPart, Canary] = Field(default={})
    paused: bool = Field(default=False, description="whether training is paused")
    training: HeadPart | None = Field(
        default=None, description="part that is trained, or will be as soon as possible"
    )

    rounds: dict[HeadPart, PastRounds] = Field(default={})

    def number(self, part: HeadPart) -> int:
        """Return the version of a part that is active; 0 is the bundle's own head."""
        return self.numbers.get(part, 0)
