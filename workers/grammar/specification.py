"""Grammars in llguidance's terms."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from llguidance import LLMatcher

from schemas import Grammar

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

JSON_OBJECT = json.dumps({"type": "object"})
WHITESPACE = r"[ \n\t]{0,8}"
"""Bounded, since a model in a loop would otherwise put spaces until its tokens run out."""


class GrammarError(ValueError):
    """The grammar is malformed, too large, or asks for what cannot be enforced."""


def specification(grammar: Grammar) -> str:
    """Return what llguidance compiles. Raises GrammarError for a schema that is not JSON."""
    if grammar.kind == "regex":
        return LLMatcher.grammar_from_regex(grammar.text)
    if grammar.kind == "lark":
        return LLMatcher.grammar_from_lark(grammar.text)
    schema = JSON_OBJECT if grammar.kind == "json_object" else grammar.text
    try:
        options: JsonCompileOptions = {"whitespace_pattern": WHITESPACE}
        return LLMatcher.grammar_from_json_schema(schema, defaults=options)
    except ValueError as error:
        raise GrammarError(f"the schema is not a JSON object: {error}") from error
