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
        """`{role, content}` with the parts joined and `developer` read as `system`."""
        role = "system" if self.role == "developer" else self.role
        if isinstance(self.content, str):
            return {"role": role, "content": self.content}
        return {"role": role, "content": "".join(part.text for part in self.content)}
