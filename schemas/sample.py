"""A finished answer that drafters may be trained on."""

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
