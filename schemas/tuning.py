"""One tuning of a head on served responses: what is to be done, and whether the result is
better."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from schemas.base import Schema

HeadPart = Literal["eagle3", "eagle", "medusa"]
"""The bundle's parts that are tuned on served responses."""

LEAST_CONVERSATIONS = 20
"""Held conversations without which a candidate is not judged better."""


class TuningJob(Schema):
    """One tuning, which a process of its own works on; it keeps its checkpoints in `folder`."""

    part: HeadPart
    target: Path = Field(description="folder of the target")
    parent: Path | None = Field(
        default=None, description="folder of the head to tune; without one a new head is made"
    )
    own: Path | None = Field(
        default=None, description="folder of the bundle's own head, if it has one"
    )
    parent_number: int = Field(default=0, ge=0, description="its version; 0: the bundle's own")
    replay: Path | None = Field(
        default=None, description="other answers, which `specadapt train generate` wrote"
    )
    folder: Path
    young: bool = Field(
        default=False, description="whether the parent has learned from little, or there is none"
    )
    tokens: int = Field(ge=1, description="answer tokens to train on, repeats included")
    device: Literal["cpu", "cuda"] = "cpu"

    @property
    def samples(self) -> Path:
        """Return the file of responses to learn from, a Sample in JSON per line."""
        return self.folder / "samples.jsonl"

    @property
    def held(self) -> Path:
        """Return the file of responses to judge on, a Sample in JSON per line."""
        return self.folder / "held.jsonl"

    @property
    def out(self) -> Path:
        """Return the folder of the tuned head."""
        return self.folder / "head"

    @property
    def verdict(self) -> Path:
        """Return the file of the Verdict, which is written last."""
        return self.folder / "verdict.json"


class Gain(Schema):
    """Tokens per step of a parent and its candidate on the same held-out answers.

    A new head has no parent: `parent` is of look-ups in the response's own text, `candidate` of the
    head together with them. In groups of replayed answers `parent` is the bundle's own head.

    low, high: 95% interval of the relative gain, by a bootstrap over conversations. Those of groups
    are wider: all of the large groups are within them in 95% of cases.
    """

    conversations: int = Field(ge=1)
    parent: float = Field(ge=1.0)
    candidate: float = Field(ge=1.0)
    low: float
    high: float


class Verdict(Schema):
    """Whether a candidate drafts better than its parent; `reason` says why not."""

    better: bool
    reason: str | None = None
    overall: Gain | None = Field(
        default=None, description="absent if there are too few held conversations"
    )
    by_group: dict[str, Gain] = Field(
        default_factory=dict,
        description='"cluster 3", "temperature 0", "sampled"; not served: "replay", "replay code"',
    )
