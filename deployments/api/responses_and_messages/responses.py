"""POST /v1/responses: OpenAI's Responses, as a chat."""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from deployments.api.input import ByField, Foreign, Input
from deployments.api.messages import few_pieces
from deployments.api.responses_and_messages.response_items import Item, chat_messages, full_name
from deployments.api.responses_and_messages.response_writer import ResponseWriter
from deployments.api.responses_and_messages.surface import SurfaceBody
from deployments.api.tools.fields import MAX_TOOLS, CustomDefinition, ToolName


class TextFormat(Input):
    """What `response_format` is in a chat."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None

    def for_chat(self) -> dict[str, Any]:
        """Return the chat's response_format."""
        if self.type != "json_schema":
            return {"type": self.type}
        schema = {"name": self.name, "description": self.description, "schema": self.schema_}
        return {"type": "json_schema", "json_schema": schema | {"strict": self.strict}}


class TextField(Input):
    """How the text of the response is written."""

    format: TextFormat | None = None
    verbosity: Any = None


class ReasoningField(Input):
    """How much the model reasons, where its chat template can say so."""

    effort: Any = None
    summary: Any = None
    generate_summary: Any = None
    context: Any = None


class ResponsesFunction(Input):
    """A function of the client."""

    type: Literal["function"]
    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def for_chat(self, namespace: str | None = None) -> list[dict[str, Any]]:
        """Return the chat's tools."""
        function = {name: getattr(self, name) for name in ("description", "parameters", "strict")}
        function["name"] = full_name(namespace, self.name)
        return [{"type": "function", "function": function}]


class ResponsesCustomTool(CustomDefinition):
    """A tool of the client that takes a text."""

    type: Literal["custom"]

    def for_chat(self, namespace: str | None = None) -> list[dict[str, Any]]:
        """Return the chat's tools."""
        custom = self.model_dump(exclude={"type"}) | {"name": full_name(namespace, self.name)}
        return [{"type": "custom", "custom": custom}]


class _OtherInNamespace(Foreign):
    """A tool that OpenAI would run."""


class Namespace(Input):
    """Tools of the client under a common name, which is put before their names."""

    type: Literal["namespace"]
    name: ToolName
    description: str | None = None
    tools: list[
        Annotated[ResponsesFunction | ResponsesCustomTool | _OtherInNamespace, ByField()]
    ] = Field(default=[], max_length=MAX_TOOLS, fail_fast=True)

    def for_chat(self) -> list[dict[str, Any]]:
        """Return the chat's tools."""
        kept = [tool for tool in self.tools if not isinstance(tool, Foreign)]
        return [made for tool in kept for made in tool.for_chat(self.name)]


class OtherResponsesTool(Foreign):
    """A tool that OpenAI would run, such as a web search."""


ResponsesTool = Annotated[
    ResponsesFunction | ResponsesCustomTool | Namespace | OtherResponsesTool, ByField()
]


class _NamedTool(Input):
    type: Literal["function", "custom"]
    name: str

    def for_chat(self) -> dict[str, Any]:
        return {"type": self.type, self.type: {"name": self.name}}


class _OtherChoice(Foreign):
    def for_chat(self) -> dict[str, Any]:
        return {"type": self.type}


class _AllowedTools(Input):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[Annotated[_NamedTool | _OtherChoice, ByField()]] = Field(
        min_length=1, max_length=MAX_TOOLS, fail_fast=True
    )

    def for_chat(self) -> dict[str, Any]:
        tools = [tool.for_chat() for tool in self.tools]
        return {"type": "allowed_tools", "allowed_tools": {"mode": self.mode, "tools": tools}}


class ResponsesRequest(SurfaceBody):
    """Responses cannot be fetched later: `store` true and `previous_response_id` are refused.
    `truncation: "auto"` leaves out the earliest turns of a conversation that is too long."""

    names: ClassVar[Mapping[str, str]] = {
        "messages": "input",
        "max_tokens": "max_output_tokens",
        "response_format.json_schema": "text.format",
        "response_format": "text.format",
        "function.parameters": "parameters",
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
    tools: Annotated[list[ResponsesTool], Field(max_length=MAX_TOOLS, fail_fast=True)] = Field(
        default=[]
    )
    tool_choice: (
        Annotated[Literal["none", "auto", "required"] | _AllowedTools | _NamedTool, ByField()]
        | None
    ) = None
    parallel_tool_calls: bool = True
    truncation: Literal["auto", "disabled"] = "disabled"
    service_tier: Any = None
    stop: Any = None
    store: Literal[False] | None = None

    @property
    def caps(self) -> bool | None:
        return False if self.shortens else None

    @property
    def shortens(self) -> bool:
        return self.truncation == "auto"

    def chat_body(self) -> dict[str, Any]:
        form, choice = self.text.format, self.tool_choice
        return {
            "messages": chat_messages(self.input, self.instructions),
            "max_tokens": self.max_output_tokens,
            "response_format": None if form is None else form.for_chat(),
            "reasoning_effort": self.reasoning.effort,
            "verbosity": self.text.verbosity,
            "tools": self._chat_tools(),
            "tool_choice": choice.for_chat() if isinstance(choice, Input) else choice,
            "parallel_tool_calls": self.parallel_tool_calls,
            "service_tier": self.service_tier,
            "stop": self.stop,
            "store": self.store,
        }

    def _chat_tools(self) -> list[dict[str, Any]]:
        kept = [tool for tool in self.tools if not isinstance(tool, Foreign)]
        return [made for tool in kept for made in tool.for_chat()]

    def _names(self) -> dict[str, dict[str, str]]:
        """Return the fields that a call of a function in a namespace has, by its full name."""
        return {
            full_name(space.name, tool.name): {"name": tool.name, "namespace": space.name}
            for space in self.tools
            if isinstance(space, Namespace)
            for tool in space.tools
            if not isinstance(tool, Foreign)
        }

    def writer(self, answer_id: str, _: int, /) -> ResponseWriter:
        choice = self.tool_choice
        form = self.text.format or TextFormat(type="text")
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
            "text": {"format": form.model_dump(by_alias=True, exclude_none=True)},
            "tool_choice": choice.model_dump() if isinstance(choice, Input) else choice or "auto",
            "tools": [tool.model_dump() for tool in self.tools],
            "top_logprobs": 0,
            "top_p": self.chat.top_p,
            "truncation": self.truncation,
        }
        return ResponseWriter(head, answer_id, self._names())
