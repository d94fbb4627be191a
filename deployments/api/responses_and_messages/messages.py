"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages, as a chat."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from deployments.api.generation import MAX_STOPS
from deployments.api.input import ByField, Input
from deployments.api.messages import (
    MAX_PIECES,
    CallArguments,
    Content,
    OtherPart,
    TextPart,
    few_pieces,
    function_call,
    joined,
)
from deployments.api.responses_and_messages.message_writer import MessageWriter
from deployments.api.responses_and_messages.surface import SurfaceBody
from deployments.api.tools.fields import MAX_TOOLS
from deployments.errors import invalid

BILLING = "x-anthropic-billing-header:"
"""What a first system block of Claude Code begins with. It changes with each request, and what
follows would be found in no cache."""


class ToolUseBlock(Input):
    """A call of an earlier answer."""

    without_effect = ("cache_control", "caller")

    type: Literal["tool_use"]
    id: str
    name: str
    input: CallArguments = Field(default={})


class ToolResultBlock(Input):
    """What a tool returned."""

    without_effect = ("cache_control",)

    type: Literal["tool_result"]
    tool_use_id: str
    content: Content = ""
    is_error: bool = False


class ThinkingBlock(Input):
    """Thoughts of an earlier answer, for templates that write them."""

    without_effect = ("data", "signature")

    type: Literal["thinking", "redacted_thinking"]
    thinking: str = ""


class OtherBlock(OtherPart):
    """A block that is no text, and of no tool of the client."""


Block = Annotated[TextPart | ToolUseBlock | ToolResultBlock | ThinkingBlock | OtherBlock, ByField()]


class Turn(Input):
    """One turn."""

    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[Block], Field(max_length=MAX_PIECES, fail_fast=True)] = ""

    def for_chat(self) -> list[dict[str, Any]]:
        """Return the turn as messages of a chat; results of tools are messages of their own."""
        if isinstance(self.content, str):
            return [{"role": self.role, "content": self.content}]
        messages: list[dict[str, Any]] = []
        for block in self.content:
            match block:
                case ToolResultBlock():
                    text = "Error: " * block.is_error + joined(block.content)
                    result = {"role": "tool", "tool_call_id": block.tool_use_id}
                    messages.append(result | {"content": text})
                case ThinkingBlock():
                    said = self._said(messages)
                    said["reasoning_content"] = said.get("reasoning_content", "") + block.thinking
                case TextPart() | OtherBlock():
                    self._said(messages)["content"] += block.text
                case ToolUseBlock():
                    call = function_call(block.id, block.name, block.input)
                    self._said(messages).setdefault("tool_calls", []).append(call)
        return messages or [{"role": self.role, "content": ""}]

    def _said(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the message that texts and calls go into."""
        if not messages or messages[-1]["role"] != self.role:
            messages.append({"role": self.role, "content": ""})
        return messages[-1]


def chat_tool(tool: Any, path: str) -> Any:
    """Return a tool as a chat has it. One that Anthropic defines, such as a web search, and what is
    no tool are told apart there. path: the tool's place in the request, for errors."""
    if not isinstance(tool, dict) or tool.get("type") not in (None, "custom", "function"):
        return tool
    if tool.get("input_schema") is None:
        missing = "missing required parameter"
        raise invalid(f"{path}.input_schema", missing, "missing_required_parameter")
    function = {name: given for name, given in tool.items() if name not in ("type", "input_schema")}
    return {"type": "function", "function": function | {"parameters": tool["input_schema"]}}


class MessagesToolChoice(Input):
    """Which tools the response uses."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False

    @model_validator(mode="after")
    def _names_its_tool(self) -> Self:
        if self.type == "tool" and self.name is None:
            raise invalid("tool_choice.name", "required with type 'tool'")
        return self

    def for_chat(self) -> Any:
        """Return the chat's tool_choice."""
        if self.type == "tool":
            return {"type": "function", "function": {"name": self.name}}
        return {"any": "required"}.get(self.type, self.type)


class OutputConfig(Input):
    """The form of the response, and how much the model reasons."""

    effort: Any = None
    format: Any = None

    def form(self) -> Any:
        """Return the chat's response_format."""
        match self.format:
            case {"type": "json_schema", **rest}:
                if rest.get("schema") is None:
                    raise invalid("output_config.format.schema", "required")
                return {"type": "json_schema", "json_schema": {"name": "answer"} | rest}
        return self.format


class Thinking(Input):
    """Whether the model thinks, where its chat template can say so, and its thoughts are shown."""

    without_effect = ("budget_tokens", "display")

    type: Literal["enabled", "adaptive", "disabled"]


class CountRequest(SurfaceBody):
    """What both endpoints share. A last message of the assistant begins the response."""

    names: ClassVar[Mapping[str, str]] = {
        "stop": "stop_sequences",
        "function.parameters": "input_schema",
        "function.": "",
        "reasoning_effort": "output_config.effort",
        "response_format.json_schema": "output_config.format",
        "response_format": "output_config.format",
    }
    without_effect = (
        *("cache_control", "context_management", "diagnostics", "inference_geo", "metadata"),
        *("service_tier", "speed", "user_profile_id", "workspace_id"),
    )
    only: ClassVar[Mapping[str, Sequence[Any]]] = {"container": (), "mcp_servers": ([],)}

    messages: Annotated[list[Turn], BeforeValidator(few_pieces)] = Field(
        min_length=1, fail_fast=True
    )
    system: Content = ""
    tools: list[Any] = Field(default=[], max_length=MAX_TOOLS)
    tool_choice: MessagesToolChoice | None = None
    output_config: OutputConfig = OutputConfig()
    thinking: Thinking = Thinking(type="adaptive")

    def chat_body(self) -> dict[str, Any]:
        thinks = self.thinking.type != "disabled"
        messages = [said for message in self.messages for said in message.for_chat()]
        choice, last = self.tool_choice, messages[-1]
        if system := self._system():
            messages.insert(0, {"role": "system", "content": system})
        return {
            "messages": messages,
            "continue_final_message": last["role"] == "assistant" and "tool_calls" not in last,
            "tools": [chat_tool(tool, f"tools[{i}]") for i, tool in enumerate(self.tools)],
            "tool_choice": None if choice is None else choice.for_chat(),
            "parallel_tool_calls": choice is None or not choice.disable_parallel_tool_use,
            "response_format": self.output_config.form(),
            "reasoning_effort": self.output_config.effort if thinks else "none",
        }

    def _system(self) -> str:
        if not isinstance(self.system, str) and self.system:
            first, *rest = self.system
            return joined(rest if first.text.startswith(BILLING) else self.system)
        return joined(self.system)

    def writer(self, answer_id: str, prompt_tokens: int, /) -> MessageWriter:
        stops = [self.chat.stop] if isinstance(self.chat.stop, str) else self.chat.stop
        return MessageWriter(self.model, answer_id, prompt_tokens, stops)


class MessagesRequest(CountRequest):
    """A conversation to continue. `store` is as in a chat; Anthropic has no such field."""

    ping: ClassVar[str] = 'event: ping\ndata: {"type":"ping"}\n\n'
    caps: ClassVar[bool | None] = True  # clients must send a maximum: they send their model's

    max_tokens: int = Field(ge=1)
    stop_sequences: list[str] = Field(default=[], max_length=MAX_STOPS)
    store: bool | None = None

    def chat_body(self) -> dict[str, Any]:
        # The engine names no stop sequence that it has found, so the text keeps it.
        stops = {"stop": self.stop_sequences, "include_stop_str_in_output": True}
        more = stops if self.stop_sequences else {}
        own = {"max_tokens": self.max_tokens, "store": self.store}
        return super().chat_body() | own | more
