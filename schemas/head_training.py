"""Training of heads on served responses: samples, tunings, and versions of heads."""

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from schemas.base import Schema
from schemas.decode import TokenId

HELD_BACK = 10
"""One conversation in this many is never trained on."""
LEAST_ROOM = 50
"""Tokens that the smallest sample counts as: its other fields take about as much memory."""


class Sample(Schema):
    """A prompt and the target's response as token ids, with what they are selected and erased
    by."""

    # Errors are logged, and must not quote what users wrote.
    model_config = ConfigDict(hide_input_in_errors=True)

    id: str = Field(min_length=1, description="request id of the answer")
    conversation: str = Field(
        pattern=r"^[0-9a-f]{64}$",
        description="hash of the conversation's beginning, which all of its turns share",
    )
    owner: str = Field(
        description="`tenant NAME`, `key NAME` for a key without a tenant, empty without keys"
    )
    fit_id: str = Field(description="the routing table's fit, which numbers the clusters")
    cluster: int = Field(ge=-1, description="-1: not routed by cluster")
    method: str = Field(description="the method that answered")
    temperature: float = Field(ge=0.0)
    prompt_token_ids: tuple[TokenId, ...] = Field(min_length=1, repr=False)
    answer_token_ids: tuple[TokenId, ...] = Field(min_length=1, repr=False)
    target: str = Field(
        default="", description="hash of the target that answered, which drafters keep with it"
    )
    time: float = Field(description="seconds since the epoch, at the ingress")

    @property
    def tokens(self) -> int:
        """Return the tokens of the prompt and the response."""
        return len(self.prompt_token_ids) + len(self.answer_token_ids)

    @property
    def size(self) -> int:
        """Return the tokens that the sample counts as where memory is bounded in tokens."""
        return max(self.tokens, LEAST_ROOM)

    @property
    def held(self) -> bool:
        """Return whether heads are judged on the sample and never trained on it.

        A conversation's turns are all held or all trained on: a later turn repeats the earlier.
        """
        return int(self.conversation[:16], 16) % HELD_BACK == 0


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
