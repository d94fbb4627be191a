"""Spaces in JSON are bounded; llguidance before 1.8 takes the bound and ignores it."""

import json

import pytest
from conftest_bundle import byte_tokenizer
from llguidance import LLMatcher
from llguidance.hf import from_tokenizer

from schemas import Grammar
from workers.grammar.specification import lark

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
GRAMMARS = (
    Grammar(kind="json_schema", text=json.dumps(SCHEMA)),
    Grammar(kind="json_object"),
)


@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: grammar.kind)
@pytest.mark.parametrize(("spaces", "allowed"), [(0, True), (8, True), (9, False)])
def test_at_most_eight_spaces_between_tokens(grammar: Grammar, spaces: int, allowed: bool) -> None:
    tokenizer = byte_tokenizer()
    matcher = LLMatcher(from_tokenizer(tokenizer), LLMatcher.grammar_from_lark(lark(grammar)))
    text = "{" + " " * spaces + '"a"'
    assert matcher.consume_tokens(tokenizer.encode(text)) is allowed
