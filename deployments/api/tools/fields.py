"""The fields of a chat request that offer tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from deployments.api.input import ByField, Foreign, Input
from deployments.errors import invalid

MAX_TOOLS = 1024

ToolName = Annotated[str, Field(min_length=1, max_length=128, pattern=r'^[^\s"\\\x00-\x1f]+$')]


class FunctionDefinition(Input):
    """A function of the client. parameters: a JSON schema of its arguments; none without it."""

    without_effect = (
        *("allowed_callers", "cache_control", "eager_input_streaming", "input_examples"),
    )

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool = False

    @property
    def schema_of_arguments(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        if self.parameters is None:
            return {"type": "object", "properties": {}, "additionalProperties": False}
        return self.parameters


class FunctionTool(Input):
    """A function that the model may call."""

    type: Literal["function"]
    function: FunctionDefinition

    @property
    def name(self) -> str:
        return self.function.name

    def for_template(self) -> dict[str, Any]:
        """Return the tool as chat templates read it."""
        function: dict[str, Any] = {"name": self.name}
        if self.function.description is not None:
            function["description"] = self.function.description
        function["parameters"] = self.function.schema_of_arguments
        return {"type": "function", "function": function}


class CustomDefinition(Input):
    """A tool that takes a text. format: the text's grammar, which the model is shown."""

    name: ToolName
    description: str | None = None
    format: dict[str, Any] = Field(default={})

    @property
    def function(self) -> FunctionDefinition:
        """Return the function of one string that the model is offered."""
        described = [self.description or ""]
        match self.format.get("grammar") or self.format:
            case {"syntax": str(syntax), "definition": str(definition)}:
                described.append(f"The input follows this {syntax} grammar:\n{definition}")
        return FunctionDefinition(
            name=self.name,
            description="\n\n".join(filter(None, described)) or None,
            parameters={
                "type": "object",
                "properties": {"input": {"type": "string"}},
                "required": ["input"],
                "additionalProperties": False,
            },
        )


class CustomTool(Input):
    """A tool that takes a text, as Codex's apply_patch."""

    type: Literal["custom"]
    custom: CustomDefinition


class OtherTool(Foreign):
    """A tool that the service would have to run, such as a web search."""


class Named(Input):
    """The name of a tool."""

    name: str


class NamedChoice(Input):
    """Ask for a call of one function."""

    type: Literal["function"]
    function: Named

    @property
    def name(self) -> str:
        return self.function.name


class CustomChoice(Input):
    """Ask for a call of one custom tool."""

    type: Literal["custom"]
    custom: Named

    @property
    def name(self) -> str:
        return self.custom.name


class _Allowed(Input):
    mode: Literal["auto", "required"]
    tools: list[Annotated[NamedChoice | CustomChoice | OtherTool, ByField()]] = Field(
        min_length=1, max_length=MAX_TOOLS, fail_fast=True
    )


class AllowedChoice(Input):
    """Limit the functions that may be called to some of those offered."""

    type: Literal["allowed_tools"]
    allowed_tools: _Allowed


Tool = Annotated[FunctionTool | CustomTool | OtherTool, ByField()]
Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True)]
ToolChoice = Annotated[
    Literal["none", "auto", "required"] | CustomChoice | AllowedChoice | NamedChoice, ByField()
]


@dataclass(frozen=True)
class Offer:
    """Hold what a request lets the model call.

    tools: all that the model is shown. callable: those that it may call; none where it may call
    none. required: whether the response has to be calls. several: whether it may be more than one.
    named: whether the request names the one function. custom: names of the tools that take a text;
    the model calls them as functions of `input`.
    """

    tools: Sequence[FunctionTool] = ()
    callable: Sequence[FunctionTool] = ()
    required: bool = False
    several: bool = True
    named: bool = False
    custom: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the functions that may be called."""
        return frozenset(tool.name for tool in self.callable)


def offered(
    given: Sequence[FunctionTool | CustomTool | OtherTool], choice: Any, several: bool
) -> Offer:
    """Return what a request offers. choice: a ToolChoice; None means "auto".

    Raises ApiError if the choice names no tool of the request, or asks for a call without tools.
    """
    tools = functions(given)
    by_name = {tool.name: tool for tool in tools}
    if len(by_name) < len(tools):
        raise invalid("tools", "each function must have a name of its own")
    custom = frozenset(tool.custom.name for tool in given if isinstance(tool, CustomTool))
    offer = Offer(tools, tools, several=several, custom=custom)
    if choice == "none" or (not tools and choice in (None, "auto")):
        return replace(offer, callable=(), several=True)
    if choice in (None, "auto"):
        return offer
    if not tools:
        kinds = " or ".join(OtherTool.kinds)
        why = f"there are no tools to call: send tools of type {kinds}, or leave it out"
        raise invalid("tool_choice", why)
    if choice == "required":
        return replace(offer, required=True)
    if isinstance(choice, AllowedChoice):
        kept = [one for one in choice.allowed_tools.tools if not isinstance(one, OtherTool)]
        allowed = [_named(by_name, one.name) for one in kept]
        required = choice.allowed_tools.mode == "required"
        if required and not allowed:
            raise invalid("tool_choice", f"allows none of the tools; they are {', '.join(by_name)}")
        return replace(offer, callable=allowed, required=required)
    only = [_named(by_name, choice.name)]
    return replace(offer, callable=only, required=True, several=False, named=True)


def offered_functions(given: Sequence[FunctionDefinition], choice: str | Named | None) -> Offer:
    """Return what a request offers in the older form. Raises ApiError as `offered`."""
    tools = [FunctionTool(type="function", function=function) for function in given]
    form = NamedChoice(type="function", function=choice) if isinstance(choice, Named) else choice
    return offered(tools, form, several=False)


def functions(given: Sequence[FunctionTool | CustomTool | OtherTool]) -> list[FunctionTool]:
    """Return the tools that the model is offered, as functions."""
    return [
        FunctionTool(type="function", function=tool.custom.function)
        if isinstance(tool, CustomTool)
        else tool
        for tool in given
        if not isinstance(tool, OtherTool)
    ]


def _named(by_name: Mapping[str, FunctionTool], name: str) -> FunctionTool:
    if name not in by_name:
        known = ", ".join(by_name)
        raise invalid("tool_choice", f"{name!r} is not among the tools; they are {known}")
    return by_name[name]
