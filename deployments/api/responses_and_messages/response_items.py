"""The items that a Responses request hands over, as a chat's messages."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from deployments.api.input import Input
from deployments.api.messages import MAX_PIECES, function_call, joined


class ItemPart(Input):
    """A part of a message; only text is understood."""

    type: Literal["input_text", "output_text"]
    text: str
    annotations: list[Any] = Field(default=[])
    logprobs: list[Any] = Field(default=[])
    prompt_cache_breakpoint: Any = None


Content = (
    str | Annotated[list[ItemPart], Field(min_length=1, max_length=MAX_PIECES, fail_fast=True)]
)


class MessageItem(Input):
    """A message, of the client or of an earlier answer."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class CallItem(Input):
    """A call of an earlier answer."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: str | None = None
    namespace: str | None = None
    caller: Any = None


class OutputItem(Input):
    """What a function returned."""

    type: Literal["function_call_output"]
    call_id: str
    output: Content
    id: str | None = None
    status: str | None = None
    caller: Any = None


class ReasoningItem(Input):
    """Reasoning of an earlier answer, which is left out of the prompt."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: list[Any] = Field(default=[])
    content: list[Any] = Field(default=[])
    encrypted_content: str | None = None
    status: str | None = None


def _kind(item: Any) -> str:
    """Return the kind of an item by its type, so that errors speak of that kind."""
    kind = item.get("type") if isinstance(item, dict) else getattr(item, "type", None)
    known = ("function_call", "function_call_output", "reasoning")
    return kind if kind in known else "message"


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[OutputItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")],
    Discriminator(_kind),
]
Items = list[Item]


def chat_messages(given: str | Sequence[Any], instructions: str | None) -> list[dict[str, Any]]:
    """Return a chat's messages. Calls join the assistant's message before them."""
    messages: list[dict[str, Any]] = []
    if instructions is not None:
        messages.append({"role": "system", "content": instructions})
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    for item in given:
        match item:
            case MessageItem():
                messages.append({"role": item.role, "content": joined(item.content)})
            case OutputItem():
                result = {"role": "tool", "tool_call_id": item.call_id}
                messages.append(result | {"content": joined(item.output)})
            case CallItem():
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                call = function_call(item.call_id, item.name, item.arguments)
                messages[-1].setdefault("tool_calls", []).append(call)
    return messages
