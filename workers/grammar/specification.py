"""Grammars in llguidance's dialect of Lark, which every engine takes."""

import json
from typing import Any

from llguidance import regex_to_lark
from llguidance.gbnf_to_lark import gbnf_to_lark

from schemas import Grammar
from workers.grammar.property_names import with_listed_names

WHITESPACE = r"[ \n\t]{0,8}"
"""Bounded, since a model in a loop would otherwise put spaces until its tokens run out."""
OPTIONS = f"%llguidance {json.dumps({'no_forcing': True})}"
"""llguidance would otherwise follow text that must come, as far as it goes: for ever behind the
`/b+/` of `start: /b+/ "b"`, in one mask."""


class GrammarError(ValueError):
    """The grammar is malformed, too large, or asks for what cannot be enforced."""


def lark(grammar: Grammar) -> str:
    """Return a grammar in Lark's notation. Raises GrammarError for a schema that is not a JSON
    object, and for text that is not GBNF."""
    return f"{_rules(grammar)}\n{OPTIONS}\n"  # the last options are those that hold


def parsed(schema: str) -> Any:
    """Return a schema's JSON. Raises GrammarError for text that is none."""
    try:
        return json.loads(schema)
    except RecursionError as error:
        raise GrammarError("its objects and lists are nested too deeply") from error
    except ValueError as error:
        raise GrammarError(f"the schema is not JSON: {error}") from error


def _rules(grammar: Grammar) -> str:
    if grammar.kind == "lark":
        return grammar.text
    if grammar.kind == "gbnf":
        try:
            return gbnf_to_lark(grammar.text)
        except Exception as error:  # its parser raises its own, and others where the text ends
            raise GrammarError(f"the grammar is not GBNF: {error}") from error
    if grammar.kind == "regex":
        # As llguidance's own: Unicode's \\d, \\w and \\s.
        return f"start: /{regex_to_lark(grammar.text, '')}/"
    return f"start: %json {json.dumps(json_schema(grammar))}"


def json_schema(grammar: Grammar) -> dict[str, Any]:
    """Return the schema of a grammar for JSON, with bounded spaces. Raises GrammarError for one
    that is not a JSON object."""
    schema = {"type": "object"} if grammar.kind == "json_object" else parsed(grammar.text)
    if not isinstance(schema, dict):
        raise GrammarError("the schema is not a JSON object")
    return spaced(schema)


def spaced(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that bounds the spaces between JSON's tokens and has a name behind every
    comma."""
    listed: dict[str, Any] = with_listed_names(schema)
    return listed | {"x-guidance": {"whitespace_pattern": WHITESPACE}}
