"""The messages of a conversation, as chats, Responses and Messages send them."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

import pydantic_core
from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from deployments.api.input import ByField, Foreign, Input, check_structure

Plain = dict[str, Any]
"""A message as chat templates read it."""


MAX_PIECES = 4096
"""Messages of a request, and parts of them. No other request is answered while they are read."""
MAX_CALLS = 256
"""Tool calls of a message."""
REPLAYED = (
    *("annotations", "cache_control", "caller", "citations", "id", "logprobs", "phase"),
    *("prompt_cache_breakpoint", "signature", "status"),
)
"""Fields of earlier responses and marks for caches, which come back with a conversation."""


def few_pieces(messages: Any) -> Any:
    """Refuse too many messages, and calls with too much in their arguments, before any is read."""
    if isinstance(messages, list):
        pieces = sum(map(_pieces, messages))
        if pieces > MAX_PIECES:
            raise PydanticCustomError(
                "too_long",
                "at most {most} messages and parts of messages, got {got}",
                {"most": MAX_PIECES, "got": pieces},
            )
        check_structure(*_arguments_in(messages), what="arguments of tool_calls")
    return messages


def _pieces(one: Any) -> int:
    """Return how many objects a message, or a part of one, is read as."""
    if not isinstance(one, dict):
        return 1
    inside = (one.get(name) for name in ("content", "output", "tool_calls"))
    return 1 + sum(sum(map(_pieces, parts)) for parts in inside if isinstance(parts, list))


def _arguments_in(value: Any) -> Iterator[bytes]:
    """Yield the arguments that come as JSON within JSON."""
    if isinstance(value, list):
        for one in value:
            yield from _arguments_in(one)
    elif isinstance(value, dict):
        for name in ("tool_calls", "function"):
            yield from _arguments_in(value.get(name))
        if isinstance(text := value.get("arguments"), str):
            yield text.encode(errors="replace")


class TextPart(Input):
    """A part of a message that is text."""

    without_effect = REPLAYED

    type: Literal["text", "input_text", "output_text", "summary_text", "reasoning_text"]
    text: str


class RefusalPart(Input):
    """What an earlier response said instead of a text."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


class OtherPart(Foreign):
    """A part that is no text. The prompt says where an image or a document was."""

    tool_name: str | None = None

    @property
    def text(self) -> str:
        if self.tool_name is not None:  # what a search among tools has found
            return self.tool_name
        media = ("image", "document", "file", "audio", "video")
        found = next((one for one in media if one in self.type), None)
        return "" if found is None else f"[{found} omitted]"


Part = Annotated[TextPart | RefusalPart | OtherPart, ByField()]
Content = str | Annotated[list[Part], Field(max_length=MAX_PIECES, fail_fast=True)]


def joined(content: str | Sequence[TextPart | RefusalPart | OtherPart]) -> str:
    """Return a message's text."""
    return content if isinstance(content, str) else "".join(part.text for part in content)


class Prediction(Input):
    """OpenAI's predicted output: a text that the response is expected to resemble."""

    type: Literal["content"]
    content: (
        str | Annotated[list[TextPart], Field(min_length=1, max_length=MAX_PIECES, fail_fast=True)]
    )


def _object(given: Any) -> Any:
    """Return the object that a call's arguments are, which come as JSON; nothing means none."""
    if isinstance(given, str):
        try:  # as strict as with the body: no lone surrogates, no more levels
            given = pydantic_core.from_json(given, allow_inf_nan=False) if given.strip() else {}
        except ValueError:
            given = None
    if not isinstance(given, dict):
        examples = {"some": r'"{\"city\": \"Oslo\"}"', "none": '"{}"'}
        why = (
            "must be a JSON object as text, such as {some}, or {none} for a call without arguments"
        )
        raise PydanticCustomError("no_object", why, examples)
    return given


CallArguments = Annotated[dict[str, Any], BeforeValidator(_object)]


class CalledFunction(Input):
    """A function that was called, with its arguments."""

    name: str
    arguments: CallArguments = Field(default={})


class CalledCustom(Input):
    """A custom tool that was called, with its text."""

    name: str
    input: str = ""


def function_call(call_id: str, name: str, arguments: Any) -> Plain:
    """Return a call of a function as chats have it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


class ToolCall(Input):
    """One call that the model made in an earlier answer."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction

    def plain(self) -> Plain:
        """Return the call with its arguments as an object, which templates write as JSON."""
        return function_call(self.id, self.function.name, self.function.arguments)


class CustomCall(Input):
    """One call of a custom tool, which the model is offered as a function of its `input`."""

    id: str
    type: Literal["custom"]
    custom: CalledCustom

    def plain(self) -> Plain:
        """Return the call as that of a function."""
        return function_call(self.id, self.custom.name, {"input": self.custom.input})


class OtherCall(Foreign):
    """A call of a tool that is not offered here."""


Call = Annotated[ToolCall | CustomCall | OtherCall, ByField(absent="function")]


class _Said(Input):
    without_effect: ClassVar[Sequence[str]] = REPLAYED

    content: Content
    name: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_empty(cls, value: Any) -> Any:
        if isinstance(value, dict) and "content" in value and value["content"] is None:
            return {**value, "content": ""}
        return value


class ChatMessage(_Said):
    """What is said to the model; `developer` is another name for `system`."""

    role: Literal["system", "developer", "user"]

    def plain(self) -> Plain:
        """Return `{role, content}` with the parts joined and `developer` read as `system`."""
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": joined(self.content)}


class AssistantMessage(_Said):
    """An earlier response: text, reasoning, calls of tools, or a refusal in place of them."""

    role: Literal["assistant"]
    content: Content = ""
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Annotated[list[Call], Field(max_length=MAX_CALLS, fail_fast=True)] = Field(
        default=[]
    )
    function_call: CalledFunction | None = None

    def calls(self) -> list[Plain]:
        """Return the calls as templates read them; the older form of one has its name as id."""
        calls = [call.plain() for call in self.tool_calls if not isinstance(call, OtherCall)]
        older = self.function_call
        if older is not None:
            calls.append(function_call(older.name, older.name, older.arguments))
        return calls

    def plain(self) -> Plain:
        """Return `{role, content}`, and `reasoning_content` and `tool_calls` if there are any."""
        message = {"role": "assistant", "content": joined(self.content) or self.refusal or ""}
        calls = self.calls()
        reasoning = self.reasoning_content or self.reasoning
        more = {"reasoning_content": reasoning, "tool_calls": calls}
        return message | {name: given for name, given in more.items() if given}


class ToolMessage(_Said):
    """What a tool returned for one call."""

    role: Literal["tool"]
    tool_call_id: str

    def plain(self) -> Plain:
        """Return `{role, content, tool_call_id}`."""
        content = joined(self.content)
        return {"role": "tool", "content": content, "tool_call_id": self.tool_call_id}


class FunctionMessage(_Said):
    """The older form of what a function returned."""

    role: Literal["function"]
    name: str

    def plain(self) -> Plain:
        """Return the same as a tool's."""
        return {"role": "tool", "content": joined(self.content), "tool_call_id": self.name}


AnyMessage = AssistantMessage | ToolMessage | FunctionMessage | ChatMessage
Message = Annotated[AnyMessage, ByField("role")]
Messages = Annotated[list[Message], BeforeValidator(few_pieces)]
"""A conversation."""


def called_bytes(message: AnyMessage) -> int:
    """Return about the size of what a message has besides its content."""
    if not isinstance(message, AssistantMessage):
        return 0
    return len(pydantic_core.to_json(message.calls())) + len(message.reasoning_content or "")


def plain_messages(messages: Sequence[AnyMessage]) -> list[Plain]:
    """Return a conversation as chat templates read it. Results have the names of the functions
    that were called, which some templates write."""
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
