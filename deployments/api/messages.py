"""The messages of a chat request."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

import pydantic_core
from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from deployments.api.input import UNSUPPORTED, Input, check_structure


def _nothing(value: Any) -> Any:
    if value:
        raise PydanticCustomError(UNSUPPORTED, "not supported; leave it out")
    return value


Unsupported = Annotated[list[Any] | None, Field(max_length=0), BeforeValidator(_nothing)]
Plain = dict[str, Any]
"""A message as chat templates read it."""


MAX_PIECES = 4096
"""Messages of a request, and parts of them. No other request is answered while they are read."""
MAX_CALLS = 256
"""Tool calls of a message."""


def few_pieces(messages: Any) -> Any:
    """Refuse too many before any is read."""
    if isinstance(messages, list):
        pieces = sum(map(_pieces, messages))
        if pieces > MAX_PIECES:
            raise PydanticCustomError(
                "too_long",
                "at most {most} messages and parts of messages, got {got}",
                {"most": MAX_PIECES, "got": pieces},
            )
    return messages


def _pieces(one: Any) -> int:
    """Return how many objects a message, or a part of one, is read as."""
    if not isinstance(one, dict):
        return 1
    inside = (one.get(name) for name in ("content", "output", "tool_calls"))
    return 1 + sum(sum(map(_pieces, parts)) for parts in inside if isinstance(parts, list))


class TextPart(Input):
    """One part of a message; only text is understood."""

    type: Literal["text"]
    text: str


Content = (
    str | Annotated[list[TextPart], Field(min_length=1, max_length=MAX_PIECES, fail_fast=True)]
)


class _Part(Protocol):
    @property
    def text(self) -> str: ...


def joined(content: str | Sequence[_Part] | None) -> str:
    """Return a message's text, empty if it has none."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content)


class Prediction(Input):
    """OpenAI's predicted output: a text that the response is expected to resemble."""

    type: Literal["content"]
    content: Content


class ChatMessage(Input):
    """One message; `developer` is another name for `system`, empty lists ask for nothing."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content
    name: str | None = None
    annotations: list[Any] = Field(default=[], max_length=0)
    tool_calls: Unsupported = None
    function_call: Unsupported = None
    audio: Unsupported = None

    def plain(self) -> Plain:
        """Return `{role, content}` with the parts joined and `developer` read as `system`."""
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": joined(self.content)}


class CalledFunction(Input):
    """A function that was called. arguments: JSON as text."""

    name: str
    arguments: str


def function_call(call_id: str, name: str, arguments: Any) -> Plain:
    """Return a call as chats have it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


class ToolCall(Input):
    """One call that the model made in an earlier answer."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction

    def plain(self) -> Plain:
        """Return the call with its arguments as an object, which templates write as JSON; text
        that is no object stays text."""
        try:  # as strict as with the body: no lone surrogates, no more levels
            arguments = pydantic_core.from_json(self.function.arguments, allow_inf_nan=False)
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            arguments = self.function.arguments
        return function_call(self.id, self.function.name, arguments)


class CallingMessage(Input):
    """An earlier answer that called tools, with or without text."""

    role: Literal["assistant"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)] | None = None
    name: str | None = None
    annotations: list[Any] = Field(default=[], max_length=0)
    tool_calls: Annotated[list[ToolCall], Field(min_length=1, max_length=MAX_CALLS, fail_fast=True)]
    function_call: Unsupported = None
    audio: Unsupported = None

    def plain(self) -> Plain:
        """Return `{role, content, tool_calls}`."""
        calls = [call.plain() for call in self.tool_calls]
        return {"role": "assistant", "content": joined(self.content), "tool_calls": calls}


class ToolMessage(Input):
    """What a tool returned for one call."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str
    name: str | None = None

    def plain(self) -> Plain:
        """Return `{role, content, tool_call_id}`."""
        message = {"role": "tool", "content": joined(self.content)}
        message["tool_call_id"] = self.tool_call_id
        return message


def _kind(message: Any) -> str:
    """Return the kind of a message by its role, so that errors speak of that kind."""
    if isinstance(message, CallingMessage):
        return "calling"
    if not isinstance(message, dict):
        return "tool" if isinstance(message, ToolMessage) else "plain"
    if message.get("role") == "tool":
        return "tool"
    return (
        "calling" if message.get("role") == "assistant" and message.get("tool_calls") else "plain"
    )


Message = Annotated[
    Annotated[ChatMessage, Tag("plain")]
    | Annotated[CallingMessage, Tag("calling")]
    | Annotated[ToolMessage, Tag("tool")],
    Discriminator(_kind),
]
Messages = Annotated[list[Message], BeforeValidator(few_pieces)]
"""A conversation."""


def called_bytes(message: ChatMessage | CallingMessage | ToolMessage) -> int:
    """Return the size of a message's calls."""
    return sum(map(len, _arguments(message)))


def _arguments(message: ChatMessage | CallingMessage | ToolMessage) -> list[str]:
    calls = message.tool_calls if isinstance(message, CallingMessage) else ()
    return [call.function.arguments for call in calls]


def plain_messages(messages: Sequence[ChatMessage | CallingMessage | ToolMessage]) -> list[Plain]:
    """Return a conversation as chat templates read it. Results have the names of the functions
    that were called, which some templates write. Raises ApiError for calls whose arguments have
    more objects, lists or values than a body may have."""
    arguments = [text for message in messages for text in _arguments(message)]
    check_structure(*map(str.encode, arguments), what="arguments of tool_calls")
    plain = [message.plain() for message in messages]
    names = {
        call["id"]: call["function"]["name"]
        for message in plain
        for call in message.get("tool_calls", ())
    }
    for message in plain:
        if message.get("tool_call_id") in names:
            message["name"] = names[message["tool_call_id"]]
    return plain
