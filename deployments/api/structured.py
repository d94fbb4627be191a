"""Structured output: how requests name a JSON mode, JSON schema, choice or grammar."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from deployments.api.input import Input
from deployments.errors import invalid
from schemas import Grammar

MAX_CHOICES = 1024
GUIDED = {f"guided_{name}": name for name in ("json", "regex", "choice", "grammar")}
"""vLLM's older names of fields of `structured_outputs`."""

_Choice = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True),
]
_Schema = dict[str, Any] | str


class JsonSchema(Input):
    """OpenAI's wrapping of a schema; it is enforced to the letter whatever `strict` says."""

    name: str
    description: str | None = None
    schema_: dict[str, Any] = Field(default={}, alias="schema")
    strict: bool = True


class ResponseFormat(Input):
    """OpenAI's response_format."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class GrammarField(Input):
    """An addition to OpenAI's parameters: a regular expression or a grammar in Lark's notation (in
    llguidance's dialect) or in GBNF, or a schema as text."""

    kind: Literal["json_schema", "json_object", "regex", "lark", "gbnf"]
    text: str = ""


class StructuredOutputs(Input):
    """vLLM's structured_outputs: one of the first five."""

    json_: _Schema | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: _Choice | None = None
    grammar: str | None = None
    json_object: bool = False
    disable_any_whitespace: Literal[False] = False
    disable_additional_properties: Literal[False] = False
    whitespace_pattern: Literal[""] = ""
    structural_tag: Literal[""] = ""

    def grammars(self) -> Iterator[tuple[str, Grammar]]:
        """Yield each constraint with its field."""
        schema, choice = self.json_, self.choice
        choices = None if choice is None else "start: " + " | ".join(map(json.dumps, choice))
        own = "gbnf" if "::=" in (self.grammar or "") else "lark"
        written: dict[str, tuple[Any, str | None]] = {
            "json": ("json_schema", json.dumps(schema) if isinstance(schema, dict) else schema),
            "regex": ("regex", self.regex),
            "choice": ("lark", choices),
            "grammar": (own, self.grammar),
        }
        for name, (kind, text) in written.items():
            if text is not None:
                field = f"structured_outputs.{name}"
                if not text:
                    raise invalid(field, "is empty")
                yield field, Grammar(kind=kind, text=text)
        if self.json_object:
            yield "structured_outputs.json_object", Grammar(kind="json_object")
