"""Behind every comma of an object there is a name, whatever patterns its names have."""

import json
import random
import re
from itertools import product

import llguidance.numpy
import numpy as np
import pytest
from conftest_bundle import byte_tokenizer

from schemas import Grammar
from workers.engine import RequestFaultError
from workers.grammar.answer_matcher import AnswerMatcher
from workers.grammar.compiler import GrammarCompiler
from workers.grammar.specification import WHITESPACE, names_of, with_listed_names

INTEGER = {"type": "integer"}
SEEDS = 40


def closed(properties, patterns, **more):
    names = dict.fromkeys(properties, INTEGER)
    by_pattern = dict.fromkeys(patterns, INTEGER)
    fields = {"properties": names, "patternProperties": by_pattern, "additionalProperties": False}
    return {"type": "object", **fields, **more}


OVERLAPPING = {
    "all required": closed(["score"], ["^score$"], required=["score"]),
    "all optional": closed(["a", "b"], ["^[ab]$"]),
    "two patterns": closed(["a", "b"], ["^a$", "^(b|a)$"]),
    "some left": closed(["a"], ["^[ab]{1,2}$"]),
    "no name matches": closed(["a"], [r"[^\s\S]", "a^b"]),
    "in other schemas": {
        "allOf": [
            {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]},
            closed(["a"], ["^a$"]),
        ]
    },
    "names elsewhere": {
        "allOf": [
            {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]},
            {"patternProperties": {"^a$": {"minimum": 1}}},
            {"properties": {"a": {}}, "additionalProperties": False},
        ]
    },
    "in a property that is named like a keyword": {
        "type": "object",
        "properties": {"default": closed(["a"], ["^a$"])},
        "required": ["default"],
        "additionalProperties": False,
    },
    "inside": {"type": "array", "items": closed(["a"], ["^a$"]), "maxItems": 2},
    "by reference": {"$defs": {"one": closed(["a"], ["^a$"])}, "$ref": "#/$defs/one"},
}
"""Four of them had commas behind which nothing could follow."""


@pytest.fixture(scope="module")
def compiler():
    tokenizer = byte_tokenizer()
    text = tokenizer.backend_tokenizer.to_str()
    return GrammarCompiler(text, len(tokenizer), [tokenizer.eos_token_id])


@pytest.fixture(scope="module")
def tokens():
    """Each token's text; the last that ends an answer has none."""
    tokenizer = byte_tokenizer()
    texts = [tokenizer.decode([index]) for index in range(len(tokenizer))]
    texts[tokenizer.eos_token_id] = ""
    return texts


def walked(matcher, tokens, seed):
    """Walk an answer at random, with a liking for what ends values: its text, None where it is
    long."""
    draw, text = random.Random(seed), ""
    bits = llguidance.numpy.allocate_token_bitmask(1, len(tokens))
    for _ in range(200):
        matcher.fill(bits, 0)
        allowed = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))
        allowed = allowed[allowed < len(tokens)].tolist()
        ends = [token for token in allowed if tokens[token] in set(',"}]')]
        token = draw.choice(ends if ends and draw.random() < 0.5 else allowed)
        if not tokens[token]:
            return text
        matcher.advance([token])
        text += tokens[token]
    return None


@pytest.mark.parametrize("name", OVERLAPPING)
def test_no_answer_comes_to_a_comma_without_a_name(compiler, tokens, name):
    grammar = Grammar(kind="json_schema", text=json.dumps(OVERLAPPING[name]))
    matcher = AnswerMatcher(compiler.start(grammar))
    ended = [walked(matcher.copy(), tokens, seed) for seed in range(SEEDS)]
    assert [json.loads(text) for text in ended if text is not None]


def test_a_walk_finds_a_comma_without_a_name(compiler, tokens):
    """Where the pattern is not listed, here in a grammar of the request's own."""
    guidance = {"x-guidance": {"whitespace_pattern": WHITESPACE}}
    schema = json.dumps(OVERLAPPING["all required"] | guidance)
    matcher = AnswerMatcher(compiler.start(Grammar(kind="lark", text=f"start: %json {schema}")))
    walks = (walked(matcher.copy(), tokens, seed) for seed in range(SEEDS))
    with pytest.raises(RequestFaultError, match="no token may follow"):
        list(walks)


TEXTS = ["".join(chars) for size in range(4) for chars in product("abc1_\n", repeat=size)]


@pytest.mark.parametrize(
    "pattern",
    [
        *("^a$", "^(a|b)$", "^a$|^b$", "^ab?$", "^[ab]{1,2}$", r"^\d$", r"^a\w$", "^$", "^a^b$"),
        *("^(?:a|bc){0,1}$", "^^a$$", "^a{2}$", "^[a-c]$", "^ab$|^ac$", "^(a)(b)$", "a^b"),
    ],
)
def test_the_names_of_a_pattern_are_all_that_it_matches(pattern):
    names = names_of(pattern)
    python = pattern.replace("$", r"\Z")
    assert {text for text in TEXTS if re.search(python, text)} == set(names) & set(TEXTS)
    assert all(re.search(python, name) for name in names)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a",
        "^a",
        "a$",
        "^a|b$",
        ".*",
        "^.$",
        "^a*$",
        "^a+$",
        "^[^a]$",
        "^a{2000}$",
        "(",
        "^(?i:a)$",
    ],
)
def test_other_patterns_have_too_many_names(pattern):
    assert names_of(pattern) is None


def test_what_is_no_pattern_of_names_stays():
    for schema in (
        {"properties": {"patternProperties": {"type": "string"}, "properties": {}}},
        {"enum": [{"patternProperties": {"^a$": {}}}], "patternProperties": {"^x": INTEGER}},
        {"patternProperties": True},
        {"patternProperties": {"^a$": {}}, "properties": 3},
    ):
        assert with_listed_names(schema) == schema


@pytest.mark.parametrize("kind", ["json_schema", "json_object"])
@pytest.mark.parametrize(("spaces", "allowed"), [(0, True), (8, True), (9, False)])
def test_at_most_eight_spaces_between_tokens(compiler, kind, spaces, allowed):
    """llguidance before 1.8 takes the bound and ignores it."""
    text = json.dumps(closed(["a"], [])) if kind == "json_schema" else ""
    matcher = compiler.start(Grammar(kind=kind, text=text))
    begun = byte_tokenizer().encode("{" + " " * spaces + '"a"')
    assert matcher.consume_tokens(begun) is allowed
