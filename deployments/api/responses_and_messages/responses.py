"""POST /v1/responses: OpenAI's Responses, as a chat."""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator
from pydantic_core import PydanticCustomError

from deployments.api.input import UNSUPPORTED, ByField, Foreign, Input
from deployments.api.messages import (
    REPLAYED,
    CallArguments,
    Content,
    Part,
    few_pieces,
    function_call,
    joined,
)
from deployments.api.responses_and_messages.response_writer import ResponseWriter
from deployments.api.responses_and_messages.surface import SurfaceBody
from deployments.api.tools.fields import MAX_TOOLS
from deployments.errors import invalid


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


class TextField(Input):
    """How the text of the response is written."""

    format: Any = None
    verbosity: Any = None


class ReasoningField(Input):
    """How much the model reasons, where its chat template can say so."""

    without_effect = ("context", "generate_summary", "summary")

    effort: Any = None


def each_tool(
    tools: Sequence[Any], at: str = "tools", space: str | None = None
) -> list[tuple[str, str | None, Any]]:
    """Return each tool's place, its namespace and the tool. Raises ApiError for what is no
    namespace."""
    found: list[tuple[str, str | None, Any]] = []
    for index, tool in enumerate(tools):
        path = f"{at}[{index}]"
        if space is not None or not isinstance(tool, dict) or tool.get("type") != "namespace":
            found.append((path, space, tool))
            continue
        name, inside = tool.get("name"), tool.get("tools") or []
        if not isinstance(name, str) or not name:
            raise invalid(f"{path}.name", "a namespace needs a name, a text that is not empty")
        if not isinstance(inside, list):
            raise invalid(f"{path}.tools", "must be a list of tools")
        found += each_tool(inside, f"{path}.tools", name)
    return found


def chat_tool(space: str | None, tool: Any) -> Any:
    """Return a tool as a chat has it, with its full name."""
    match tool:
        case {"name": str(name)}:
            tool = tool | {"name": full_name(space, name)}
    return nested(tool)


def nested(one: Any) -> Any:
    """Return an object as a chat has it: its fields are those of a field with its type's name."""
    match one:
        case {"type": "allowed_tools", "tools": list(tools), **more}:
            inside = {**more, "tools": [*map(nested, tools)]}
            return {"type": "allowed_tools", "allowed_tools": inside}
        case {"type": "function" | "custom" | "json_schema" | "allowed_tools" as kind, **rest}:
            return {"type": kind, kind: rest}
    return one


class ResponsesRequest(SurfaceBody):
    """Responses cannot be fetched later: `store` true and `previous_response_id` are refused.
    `truncation: "auto"` leaves out the earliest turns of a conversation that is too long."""

    names: ClassVar[Mapping[str, str]] = {
        "messages": "input",
        "max_tokens": "max_output_tokens",
        "response_format.json_schema": "text.format",
        "response_format": "text.format",
        "tool_choice.allowed_tools": "tool_choice",
        "function.": "",
        "custom.": "",
        "reasoning_effort": "reasoning.effort",
        "verbosity": "text.verbosity",
    }
    without_effect = (
        *("client_metadata", "include", "prompt_cache_options", "prompt_cache_retention"),
        *("safety_identifier", "stream_options", "user"),
    )
    only: ClassVar[Mapping[str, Sequence[Any]]] = {
        "background": (False,),
        "context_management": ([],),
        "conversation": (),
        "max_tool_calls": (),
        "moderation": (),
        "previous_response_id": (),
        "prompt": (),
        "top_logprobs": (0,),
    }

    input: Annotated[
        str | Annotated[list[Item], Field(min_length=1, fail_fast=True)],
        BeforeValidator(few_pieces),
    ]
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    metadata: dict[str, str] = Field(default={}, max_length=16)
    text: TextField = TextField()
    reasoning: ReasoningField = ReasoningField()
    tools: list[Any] = Field(default=[], max_length=MAX_TOOLS)
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    truncation: Literal["auto", "disabled"] = "disabled"
    service_tier: Any = None
    stop: Any = None
    store: bool | None = None

    def here(self, param: str) -> str:
        path = super().here(param)
        if found := re.match(r"tools\[(\d+)\]", path):  # counted with those in namespaces
            path = each_tool(self.tools)[int(found[1])][0] + path[found.end() :]
        return path

    @field_validator("store")
    @classmethod
    def _is_not_stored(cls, value: bool | None) -> bool | None:
        if value:
            raise invalid(
                "store", "not supported; leave it out or send false", "unsupported_parameter"
            )
        return value

    @property
    def shortens(self) -> bool:
        return self.truncation == "auto"

    def chat_body(self) -> dict[str, Any]:
        return {
            "messages": chat_messages(self.input, self.instructions),
            "max_tokens": self.max_output_tokens,
            "response_format": nested(self.text.format),
            "reasoning_effort": self.reasoning.effort,
            "verbosity": self.text.verbosity,
            "tools": [chat_tool(space, tool) for _, space, tool in each_tool(self.tools)],
            "tool_choice": nested(self.tool_choice),
            "parallel_tool_calls": self.parallel_tool_calls,
            "service_tier": self.service_tier,
            "stop": self.stop,
            "store": self.store,
        }

    def writer(self, answer_id: str, _: int, /) -> ResponseWriter:
        # The fields that a call of a function in a namespace has, by its full name.
        names = {
            full_name(space, tool["name"]): {"name": tool["name"], "namespace": space}
            for _, space, tool in each_tool(self.tools)
            if space and isinstance(tool, dict) and "name" in tool
        }
        head = {
            "created_at": int(time.time()),
            "background": False,
            "model": self.model,
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata,
            "parallel_tool_calls": self.parallel_tool_calls,
            "previous_response_id": None,
            "reasoning": {"effort": self.reasoning.effort, "summary": None},
            "service_tier": "default",
            "store": False,
            "temperature": self.chat.temperature,
            "text": {"format": self.text.format or {"type": "text"}},
            "tool_choice": self.tool_choice or "auto",
            "tools": self.tools,
            "top_logprobs": 0,
            "top_p": self.chat.top_p,
            "truncation": self.truncation,
        }
        return ResponseWriter(head, answer_id, names)
