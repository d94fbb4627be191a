"""The items that a Responses request hands over, as a chat's messages."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from deployments.api.input import UNSUPPORTED, ByField, Foreign, Input
from deployments.api.messages import (
    REPLAYED,
    CallArguments,
    Content,
    Part,
    function_call,
    joined,
)


class _Item(Input):
    without_effect: ClassVar[Sequence[str]] = REPLAYED


class MessageItem(_Item):
    """A message, of the client or of an earlier answer."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content = ""


class CallItem(_Item):
    """A call of a function in an earlier answer."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: CallArguments = Field(default={})
    namespace: str | None = None

    def plain(self) -> dict[str, Any]:
        """Return the call as a chat has it."""
        return function_call(self.call_id, full_name(self.namespace, self.name), self.arguments)


class CustomCallItem(_Item):
    """A call of a custom tool in an earlier answer."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str = ""
    namespace: str | None = None

    def plain(self) -> dict[str, Any]:
        """Return the call as a chat has it."""
        name = full_name(self.namespace, self.name)
        custom = {"name": name, "input": self.input}
        return {"id": self.call_id, "type": "custom", "custom": custom}


class OutputItem(_Item):
    """What a tool returned."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    name: str | None = None
    output: Content = ""


class ReasoningItem(_Item):
    """Reasoning of an earlier answer, for templates that write it."""

    without_effect = (*REPLAYED, "encrypted_content")

    type: Literal["reasoning"]
    summary: list[Part] = Field(default=[])
    content: list[Part] = Field(default=[])


class ReferenceItem(Input):
    """An item that OpenAI would have stored."""

    type: Literal["item_reference"]

    @field_validator("type")
    @classmethod
    def _not_stored(cls, _: str) -> str:
        why = "responses are not stored; send store: false or the items themselves"
        raise PydanticCustomError(UNSUPPORTED, why)


class OtherItem(Foreign):
    """An item of a tool that another service has run."""


Item = Annotated[
    MessageItem
    | CallItem
    | CustomCallItem
    | OutputItem
    | ReasoningItem
    | ReferenceItem
    | OtherItem,
    ByField(absent="message"),
]


def full_name(namespace: str | None, name: str) -> str:
    """Return the name by which the model is offered a function of a namespace."""
    return name if namespace is None else f"{namespace}.{name}"


def chat_messages(given: str | Sequence[Item], instructions: str | None) -> list[dict[str, Any]]:
    """Return a chat's messages. What an answer consists of is one message of the assistant."""
    messages: list[dict[str, Any]] = []
    if instructions is not None:
        messages.append({"role": "system", "content": instructions})
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    for item in given:
        match item:
            case MessageItem(role="assistant"):
                _answer(messages, "tool_calls", "content")["content"] = joined(item.content)
            case MessageItem():
                messages.append({"role": item.role, "content": joined(item.content)})
            case OutputItem():
                result = {"role": "tool", "tool_call_id": item.call_id}
                messages.append(result | {"content": joined(item.output)})
            case CallItem() | CustomCallItem():
                _answer(messages).setdefault("tool_calls", []).append(item.plain())
            case ReasoningItem():
                text = "\n\n".join(part.text for part in item.content or item.summary)
                if text:
                    said = _answer(messages, "tool_calls", "content")
                    said["reasoning_content"] = said.get("reasoning_content", "") + text
    return messages


def _answer(messages: list[dict[str, Any]], *without: str) -> dict[str, Any]:
    """Return the assistant's message that goes on, a new one where the last has one of these."""
    last: Mapping[str, Any] = messages[-1] if messages else {}
    if last.get("role") != "assistant" or any(name in last for name in without):
        messages.append({"role": "assistant"})
    return messages[-1]
