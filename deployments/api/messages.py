"""The messages of a chat request."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from deployments.api.input import UNSUPPORTED, Input


def _nothing(value: Any) -> Any:
    if value:
        raise PydanticCustomError(UNSUPPORTED, "not supported: answers are text and call no tools")
    return value


Unsupported = Annotated[list[Any] | None, Field(max_length=0), BeforeValidator(_nothing)]


MAX_PIECES = 4096
"""Messages of a request, and parts of them. Each costs time in which nobody else is answered."""


def _few(messages: Any) -> Any:
    """Refuse too many before any is read."""
    if isinstance(messages, list):
        contents = (one.get("content") for one in messages if isinstance(one, dict))
        pieces = len(messages) + sum(len(one) for one in contents if isinstance(one, list))
        if pieces > MAX_PIECES:
            raise PydanticCustomError(
                "too_long",
                "at most {most} messages and parts of messages, got {got}",
                {"most": MAX_PIECES, "got": pieces},
            )
    return messages


class TextPart(Input):
    """One part of a message; only text is understood."""

    type: Literal["text"]
    text: str


class ChatMessage(Input):
    """One message; `developer` is another name for `system`, empty lists ask for nothing."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(min_length=1, fail_fast=True)]
    name: str | None = None
    annotations: list[Any] = Field(default=[], max_length=0)
    tool_calls: Unsupported = None
    function_call: Unsupported = None
    audio: Unsupported = None

    def plain(self) -> dict[str, str]:
        """Return `{role, content}` with the parts joined and `developer` read as `system`."""
        role = "system" if self.role == "developer" else self.role
        if isinstance(self.content, str):
            return {"role": role, "content": self.content}
        return {"role": role, "content": "".join(part.text for part in self.content)}


Messages = Annotated[list[ChatMessage], BeforeValidator(_few)]
"""A conversation."""
