"""One tuning of a head on served answers: what is to be done, and whether the result is better."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from schemas.base import Schema

HeadPart = Literal["eagle3", "eagle", "medusa"]
"""The bundle's parts that are tuned on served answers."""


class TuningJob(Schema):
    """Files and settings of one tuning; a process reads it as JSON.

    `work` keeps the target's states and checkpoints, with which an interrupted job goes on.
    """

    part: HeadPart
    target: Path = Field(description="folder of the target")
    parent: Path = Field(description="folder of the head to tune")
    samples: Path = Field(description="answers to learn from, a Sample in JSON per line")
    held: Path = Field(description="answers to judge on, likewise")
    replay: Path | None = Field(
        default=None, description="other answers, which `specadapt train generate` wrote"
    )
    work: Path
    out: Path = Field(description="folder of the tuned head")
    verdict: Path = Field(description="file of the Verdict, which is written last")
    tokens: int = Field(ge=1, description="answer tokens to train on, repeats included")
    threads: int = Field(default=1, ge=1)
    device: Literal["cpu", "cuda"] = "cpu"
    seed: int = 0


class Gain(Schema):
    """Tokens per step of a parent and its candidate on the same held answers.

    low, high: 95% interval of the relative gain, by a bootstrap over conversations.
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
    overall: Gain | None = Field(default=None, description="absent without held answers")
    by_group: dict[str, Gain] = Field(
        default_factory=dict,
        description='by cluster and temperature: "cluster 3", "temperature 0", "sampled"',
    )
