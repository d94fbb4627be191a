"""Grammars that answers must follow, in llguidance's terms. No torch and no tokenizer here."""

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
    """The grammar is malformed or asks for what cannot be enforced; the message says what."""


def specification(grammar: Grammar) -> str:
    """What llguidance compiles; raises GrammarError for a schema that is not JSON."""
    if grammar.kind == "regex":
        return LLMatcher.grammar_from_regex(grammar.text)
    if grammar.kind == "lark":
        return LLMatcher.grammar_from_lark(grammar.text)
    schema = JSON_OBJECT if grammar.kind == "json_object" else grammar.text
    try:
        options: JsonCompileOptions = {"whitespace_pattern": WHITESPACE}
        return LLMatcher.grammar_from_json_schema(schema, defaults=options)
    except ValueError as error:
        raise GrammarError(f"the schema is not JSON: {error}") from error


def check(grammar: Grammar) -> None:
    """Raises GrammarError where the grammar cannot be compiled."""
    failed, said = LLMatcher.validate_grammar_with_warnings(specification(grammar))
    if failed:
        raise GrammarError(said[0])
