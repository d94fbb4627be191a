"""The fields of a chat request that offer tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from deployments.api.input import Input
from deployments.errors import invalid

MAX_TOOLS = 128

ToolName = Annotated[str, Field(min_length=1, max_length=128, pattern=r'^[^\s"\\\x00-\x1f]+$')]


class FunctionDefinition(Input):
    """A function of the client. parameters: a JSON schema of its arguments; none without it."""

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
    """One tool that the model may call; only functions are offered."""

    type: Literal["function"]
    function: FunctionDefinition

    def for_template(self) -> dict[str, Any]:
        """Return the tool as chat templates read it."""
        function: dict[str, Any] = {"name": self.function.name}
        if self.function.description is not None:
            function["description"] = self.function.description
        function["parameters"] = self.function.schema_of_arguments
        return {"type": "function", "function": function}


class _NamedFunction(Input):
    name: str


class NamedChoice(Input):
    """Ask for a call of one function."""

    type: Literal["function"]
    function: _NamedFunction


class _Allowed(Input):
    mode: Literal["auto", "required"]
    tools: list[NamedChoice] = Field(min_length=1, max_length=MAX_TOOLS, fail_fast=True)


class AllowedChoice(Input):
    """Limit the functions that may be called to some of those offered."""

    type: Literal["allowed_tools"]
    allowed_tools: _Allowed


def _kind(choice: Any) -> str:
    if isinstance(choice, str):
        return "word"
    kind = choice.get("type") if isinstance(choice, dict) else getattr(choice, "type", None)
    return "allowed" if kind == "allowed_tools" else "named"


Tools = Annotated[list[FunctionTool], Field(max_length=MAX_TOOLS, fail_fast=True)]
ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("word")]
    | Annotated[NamedChoice, Tag("named")]
    | Annotated[AllowedChoice, Tag("allowed")],
    Discriminator(_kind),
]


@dataclass(frozen=True)
class Offer:
    """Hold what a request lets the model call.

    tools: all that the model is shown. callable: those that it may call; none where it may call
    none. required: whether the response has to be calls. several: whether it may be more than one.
    """

    tools: Sequence[FunctionTool] = ()
    callable: Sequence[FunctionTool] = ()
    required: bool = False
    several: bool = True

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the functions that may be called."""
        return frozenset(tool.function.name for tool in self.callable)


def offered(tools: Sequence[FunctionTool], choice: Any, several: bool) -> Offer:
    """Return what a request offers. choice: a ToolChoice; None means "auto".

    Raises ApiError if the choice names no tool of the request, or asks for a call without tools.
    """
    by_name = {tool.function.name: tool for tool in tools}
    if len(by_name) < len(tools):
        raise invalid("tools", "each function must have a name of its own")
    if choice == "none" or (not tools and choice in (None, "auto")):
        return Offer(tools)
    if choice in (None, "auto"):
        return Offer(tools, tools, several=several)
    if not tools:
        raise invalid("tool_choice", "there are no tools to call: send tools, or leave it out")
    if choice == "required":
        return Offer(tools, tools, required=True, several=several)
    if isinstance(choice, NamedChoice):
        return Offer(tools, [_named(by_name, choice)], required=True, several=False)
    allowed = [_named(by_name, one) for one in choice.allowed_tools.tools]
    return Offer(tools, allowed, choice.allowed_tools.mode == "required", several)


def _named(by_name: Mapping[str, FunctionTool], choice: NamedChoice) -> FunctionTool:
    name = choice.function.name
    if name not in by_name:
        known = ", ".join(by_name)
        raise invalid("tool_choice", f"{name!r} is not among the tools; they are {known}")
    return by_name[name]
