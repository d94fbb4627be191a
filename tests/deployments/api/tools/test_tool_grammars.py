"""Answers that have to call tools: what their grammar lets through, in every format."""

import json

import pytest

from deployments.api.tools.family import calls_or
from deployments.api.tools.fields import FunctionTool, offered
from deployments.api.tools.formats import FENCE, HERMES, LLAMA3, MISTRAL, MISTRAL_NAMED
from deployments.api.tools.parser import Text, ToolCallParser, calls_in
from schemas import Grammar
from workers.grammar.compiler import compiled, wrapped
from workers.grammar.specification import GrammarError

POINT = {
    "type": "object",
    "properties": {"at": {"$ref": "#/$defs/place"}},
    "required": ["at"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "integer"}},
}
FORMATS = {
    "hermes": HERMES,
    "llama3": LLAMA3,
    "mistral": MISTRAL,
    "mistral named": MISTRAL_NAMED,
    "fence": FENCE,
}


def tool(name, parameters=None, strict=False):
    function = {"name": name, "parameters": parameters, "strict": strict}
    return FunctionTool.model_validate({"type": "function", "function": function})


TOOLS = [tool("point", POINT), tool("get.time")]


@pytest.fixture(scope="module")
def tokenizer(tiny_bundle):
    return tiny_bundle.tokenizer()


@pytest.fixture(scope="module")
def vocabulary(tiny_bundle, tokenizer):
    text = (tiny_bundle.part("tokenizer") / "tokenizer.json").read_text()
    return wrapped(text, len(tokenizer), [tokenizer.eos_token_id])


def grammar(form, choice="required", several=True, otherwise=None, tools=TOOLS):
    offer = offered(tools, choice, several)
    return calls_or(otherwise, offer, form, lambda _: None, loose=False)


@pytest.fixture
def follows(tokenizer, vocabulary):
    def check(asked, text):
        """Whether a whole answer follows a grammar."""
        matcher = compiled(asked, vocabulary)
        ids = tokenizer.encode(text, add_special_tokens=False)
        return matcher.validate_tokens(ids) == len(ids) and (
            matcher.consume_tokens(ids) and bool(matcher.is_accepting())
        )

    return check


def answer(form, *calls):
    return form.answer([form.call(name, json.dumps(of)) for name, of in calls])


@pytest.mark.parametrize("name", FORMATS)
def test_a_constrained_answer_is_what_the_parser_reads(name, follows):
    form = FORMATS[name]
    calls = [("point", {"at": 3}), ("get.time", {})]
    several = [calls, calls[:1]] if form.several else [calls[:1]]
    for made in several:
        text = answer(form, *made)
        assert follows(grammar(form), text)
        parser = ToolCallParser(form, ["point", "get.time"])
        pieces = [*parser.push(text), *parser.end()]
        assert [(call.name, json.loads(call.arguments)) for call in calls_in(pieces)] == made
        assert not any(isinstance(piece, Text) for piece in pieces)


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_else_follows_it(name, follows):
    form = FORMATS[name]
    assert not follows(grammar(form), "Hello")
    assert not follows(grammar(form), answer(form, ("point", {"at": "x"})))
    assert not follows(grammar(form), answer(form, ("get.time", {"zone": 1})))
    assert not follows(grammar(form), answer(form, ("other", {})))
    two = answer(form, ("get.time", {}), ("get.time", {}))
    assert not follows(grammar(form, several=False), two)


def test_an_answer_by_a_schema_leaves_the_choice_of_calling(follows):
    schema = Grammar(kind="json_schema", text=json.dumps(POINT))
    asked = grammar(HERMES, otherwise=schema)
    assert follows(asked, '{"at": 3}')
    assert follows(asked, answer(HERMES, ("get.time", {})))
    assert not follows(asked, "Hello")


def test_special_tokens_are_in_the_grammar_by_their_ids():
    asked = calls_or(
        None, offered(TOOLS, "required", True), MISTRAL, {"[TOOL_CALLS]": 5}.get, loose=False
    )
    assert asked.text.startswith('start: <[5]> "[" call')


def test_a_loose_schema_is_any_object(follows, vocabulary):
    broken = tool("point", {"type": "object", "properties": {"a": {"type": "nothing"}}})
    offer = offered([broken], "required", False)
    with pytest.raises(GrammarError):
        compiled(calls_or(None, offer, HERMES, lambda _: None, loose=False), vocabulary)
    asked = calls_or(None, offer, HERMES, lambda _: None, loose=True)
    assert follows(asked, answer(HERMES, ("point", {"a": 1})))
