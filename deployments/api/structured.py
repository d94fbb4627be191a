"""Structured output: a request's JSON mode, JSON schema, choice or grammar."""

import json
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

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


class StructuredRequest(Input):
    """The fields by which a request asks for a form of its response."""

    response_format: ResponseFormat = ResponseFormat(type="text")
    grammar: GrammarField | None = None
    structured_outputs: StructuredOutputs | None = None
    ignore_eos: bool = False

    @model_validator(mode="before")
    @classmethod
    def _older_names(cls, value: Any) -> Any:
        """Read GUIDED's fields as fields of `structured_outputs`."""
        if not isinstance(value, dict):
            return value
        outputs = {n: value[old] for old, n in GUIDED.items() if value.get(old) is not None}
        rest = {name: given for name, given in value.items() if name not in GUIDED}
        if outputs and rest.get("structured_outputs") is not None:
            raise invalid("structured_outputs", f"give either it or {', '.join(GUIDED)}")
        return rest | {"structured_outputs": outputs} if outputs else rest

    @cached_property
    def wanted_grammar(self) -> tuple[str, Grammar] | None:
        """Return the one grammar that the response has to follow, with its field; None without one.

        Raises ApiError naming the field if there are two, if one lacks its text, or with
        ignore_eos.
        """
        asked = list(self._grammars())
        if self.structured_outputs is not None and not list(self.structured_outputs.grammars()):
            why = "give one of json, regex, choice, grammar and json_object"
            raise invalid("structured_outputs", why)
        if not asked:
            return None
        if len(asked) > 1:
            fields = [field for field, _ in asked]
            raise invalid(fields[1].partition(".")[0], f"give either {fields[0]} or {fields[1]}")
        if self.ignore_eos:
            raise invalid("ignore_eos", "not possible with a grammar; leave it out")
        return asked[0]

    def _grammars(self) -> Iterator[tuple[str, Grammar]]:
        form, given = self.response_format, self.grammar
        if form.type == "json_object":
            yield "response_format", Grammar(kind="json_object")
        elif form.type == "json_schema":
            if form.json_schema is None:
                raise invalid("response_format.json_schema", "required with type 'json_schema'")
            schema = json.dumps(form.json_schema.schema_)
            yield "response_format.json_schema.schema", Grammar(kind="json_schema", text=schema)
        if given is not None:
            if (given.kind == "json_object") == bool(given.text):
                why = "kind 'json_object' takes no text; all others need one"
                raise invalid("grammar.text", why)
            yield "grammar.text", Grammar(kind=given.kind, text=given.text)
        if self.structured_outputs is not None:
            yield from self.structured_outputs.grammars()
