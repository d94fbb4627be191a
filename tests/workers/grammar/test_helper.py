"""Which grammars a real helper process refuses, and that it outlives all of them."""

import json
import subprocess
import sys

import pytest
from conftest_bundle import demo_tokenizer

from schemas import Grammar
from workers.grammar.compiler import GrammarCompiler
from workers.grammar.specification import GrammarError


def schema(value):
    return Grammar(kind="json_schema", text=json.dumps(value))


def regex(text):
    return Grammar(kind="regex", text=text)


def lark(text):
    return Grammar(kind="lark", text=text)


def chain(definitions, link):
    """Each definition refers to the next one through `link`."""
    defs = {f"d{i}": link(f"#/$defs/d{i + 1}") for i in range(definitions)}
    return {"$defs": {**defs, f"d{definitions}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def nested(levels, around):
    """A schema in so many others, as text: json.dumps would not do it."""
    before, after = json.dumps(around("HERE")).split('"HERE"')
    return Grammar(kind="json_schema", text=before * levels + '{"type": "string"}' + after * levels)


def closed(**properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


ITSELF = {"$ref": "#"}
LOST = {"$defs": {"x": {"$ref": "#/$defs/x"}}}
KILLERS = {
    "references": schema(chain(2500, lambda ref: {"$ref": ref})),
    "items": schema(chain(1150, lambda ref: {"type": "array", "items": {"$ref": ref}})),
    "anyOf": schema(chain(1500, lambda ref: {"anyOf": [{"type": "null"}, {"$ref": ref}]})),
    "allOf": schema(chain(1500, lambda ref: {"allOf": [{"$ref": ref}]})),
    "properties": schema(chain(1500, lambda ref: closed(a={"$ref": ref}))),
    "nested items": nested(5000, lambda inner: {"type": "array", "items": inner}),
    "nested in JSON only": Grammar(kind="json_schema", text='{"enum": ' + "[" * 9000 + "]" * 9000),
    "many enum values": schema({"enum": [f"{i:08}" for i in range(170_000)]}),
    "many properties": schema({"properties": {f"p{i}": {"type": "string"} for i in range(5000)}}),
    "rules": lark("start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(3000)) + 'r3000: "a"'),
    "fewer rules": lark(
        "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(900)) + 'r900: "a"'
    ),
    "lark parentheses": lark("start: " + "(" * 5000 + '"a"' + ")" * 5000),
    "regex parentheses": regex("(" * 50_000 + "a" + ")" * 50_000),
    "references in lark": lark(
        "start: %json " + json.dumps(chain(2500, lambda ref: {"$ref": ref}))
    ),
}
WITHOUT_SENTENCE = {
    "itself": schema(ITSELF),
    "each other": schema(
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}} | {"$ref": "#/$defs/a"}
    ),
    "allOf itself": schema({"allOf": [ITSELF]}),
    "required itself": schema(closed(name={"type": "string"}, next=ITSELF)),
    "items itself": schema({"type": "array", "items": ITSELF, "minItems": 1}),
    "behind a property": schema(LOST | closed(a={"type": "string"}, b={"$ref": "#/$defs/x"})),
    "no value": schema({"enum": []}),
    "no number": schema({"type": "integer", "minimum": 5, "maximum": 3}),
    "no pattern": schema({"type": "string", "pattern": r"[^\s\S]"}),
    "rule itself": lark("start: start"),
    "rule after text": lark('start: "a" start'),
    "rule before text": lark('start: start "a"'),
    "rules in a circle": lark("start: a\na: b\nb: a"),
    "lark's own schema": lark('start: %json {"$ref": "#"}'),
    "no character": regex(r"[^\s\S]"),
    "no terminal": lark("start: T\nT: /a/ & /b/"),
    "no terminal in the middle": lark('start: "x" T\nT: /a/ & /b/'),
}
UNDRAFTABLE = {
    "tokens at most": lark('start: "a" b\nb[max_tokens=3]: /[a-z]+/'),
    "a stop": lark('start: "a" b "c"\nb[stop="."]: /[a-z]*/'),
}
GOOD = {
    "linked list": schema(
        {
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
                    "required": ["value"],
                    "additionalProperties": False,
                }
            },
            "$ref": "#/$defs/node",
        }
    ),
    "list that ends with null": schema(
        closed(value={"type": "integer"}, next={"anyOf": [{"type": "null"}, ITSELF]})
    ),
    "deep": schema(chain(150, lambda ref: {"$ref": ref})),
    "nested": nested(40, lambda inner: {"properties": {"a": inner}}),
    "a name with spaces": schema(
        {"$defs": {"a start b": {"type": "string"}}, "$ref": "#/$defs/a%20start%20b"}
    ),
    "enum": schema({"enum": [f"{i:06}" for i in range(9000)]}),
    "long string": schema({"type": "string", "maxLength": 1_000_000_000}),
    "many items": schema({"type": "array", "items": {"type": "integer"}, "minItems": 1000}),
    "format": schema({"type": "string", "format": "date-time"}),
    "any object": Grammar(kind="json_object"),
    "left recursion": lark('start: start "a" | "b"'),
    "ignored spaces": lark('start: "a" "b"\n%ignore / +/'),
    "alternatives": regex("(yes|no)!"),
    "long text": regex("a{2000}"),
    "a suffix": lark('start: "a" b "c"\nb[suffix="."]: /[a-z]*/'),
    "letters": regex(r"\p{L}{1,100}"),
    "empty": regex("a?"),
    "a million letters": regex("(a{1000}){1000}"),
    "what follows never comes": lark('start: /b+/ "b"'),
    "options of its own": lark('%llguidance {"no_forcing": false}\nstart: /b+/ "b"'),
}


@pytest.fixture(scope="module")
def compiler_arguments():
    tokenizer = demo_tokenizer()
    return tokenizer, len(tokenizer), [tokenizer.eos_token_id]


@pytest.fixture(scope="module")
def verdict(compiler_arguments, tmp_path_factory):
    """One helper for all grammars of this file: why it refuses one, None where it does not."""
    tokenizer, vocab, end = compiler_arguments
    file = tmp_path_factory.mktemp("helper") / "tokenizer.json"
    file.write_text(tokenizer.backend_tokenizer.to_str(), encoding="utf-8")
    command = [sys.executable, "-m", "workers.grammar.helper", file, str(vocab), *map(str, end)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as helper:

        def asked(grammar):
            helper.stdin.write(grammar.model_dump_json().encode() + b"\n")
            helper.stdin.flush()
            seconds, why = json.loads(helper.stdout.readline())
            assert seconds < 5.0
            return why

        yield asked
        helper.stdin.close()
        assert helper.wait(60) == 0


@pytest.mark.parametrize("name", KILLERS)
def test_what_would_kill_an_ingress_is_refused(verdict, name):
    assert verdict(KILLERS[name])
    assert verdict(GOOD["alternatives"]) is None


@pytest.mark.parametrize("name", WITHOUT_SENTENCE)
def test_what_no_answer_satisfies_is_refused(verdict, name):
    assert verdict(WITHOUT_SENTENCE[name])


@pytest.mark.parametrize("name", UNDRAFTABLE)
def test_what_no_draft_can_follow_is_refused(verdict, name):
    """Otherwise the method that answers would decide whether the answer comes to an end."""
    assert "answers cannot be drafted under it" in verdict(UNDRAFTABLE[name])


@pytest.mark.parametrize("name", GOOD)
def test_what_answers_can_follow_is_accepted(verdict, compiler_arguments, name):
    tokenizer, vocab, end = compiler_arguments
    assert verdict(GOOD[name]) is None
    GrammarCompiler(tokenizer.backend_tokenizer.to_str(), vocab, end).start(GOOD[name])


def test_an_engine_checks_the_bounds_itself(compiler_arguments):
    tokenizer, vocab, end = compiler_arguments
    compiler = GrammarCompiler(tokenizer.backend_tokenizer.to_str(), vocab, end)
    for name in ("references", "nested items", "many enum values", "rules"):
        with pytest.raises(GrammarError, match=r"levels|deeply|bytes|rules"):
            compiler.start(KILLERS[name])
