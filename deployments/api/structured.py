"""Structured output: a request's JSON mode, JSON schema or grammar."""

import json
from typing import Any, Literal

from pydantic import Field

from deployments.api.input import Input
from deployments.errors import ApiError
from schemas import Grammar


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
    llguidance's dialect), or a schema as text."""

    kind: Literal["json_schema", "json_object", "regex", "lark"]
    text: str = ""


def grammar(
    form: ResponseFormat, given: GrammarField | None, *, ignore_eos: bool
) -> Grammar | None:
    """Return the one grammar that a request asks for, None if it asks for none.

    Raises ApiError naming the field if there are two, if one lacks its text, or with ignore_eos.
    """
    if form.type == "text" and given is None:
        return None
    if form.type != "text" and given is not None:
        raise _invalid("grammar", "give either response_format or grammar")
    if ignore_eos:
        raise _invalid("ignore_eos", "not possible with a grammar; leave it out")
    if given is not None:
        if (given.kind == "json_object") == bool(given.text):
            raise _invalid("grammar.text", "kind 'json_object' takes no text; all others need one")
        return Grammar(kind=given.kind, text=given.text)
    if form.type == "json_object":
        return Grammar(kind="json_object")
    if form.json_schema is None:
        raise _invalid("response_format.json_schema", "required with type 'json_schema'")
    return Grammar(kind="json_schema", text=json.dumps(form.json_schema.schema_))


def refused(given: GrammarField | None, why: str) -> ApiError:
    """Return the error for a grammar that cannot be followed; it names the field."""
    field = "response_format.json_schema.schema" if given is None else "grammar.text"
    return _invalid(field, why)


def _invalid(param: str, why: str) -> ApiError:
    return ApiError(400, f"{param}: {why}", param=param, code="invalid_value")
