"""Structured output under speculation: valid whatever drafts, and the same at temperature 0."""

import asyncio
import json
import re
import threading
from typing import Any

import jsonschema
import numpy as np
import pytest
from conftest_bundle import demo_tokenizer
from decoding import decode
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import Grammar
from workers.bundle import Bundle
from workers.engine import EngineRefusedError, RequestFaultError
from workers.grammar import compiler as compiler_module
from workers.grammar.answer_matcher import AnswerMatcher
from workers.grammar.compiler import GrammarCompiler
from workers.torch_engine.constraint import Constraint
from workers.torch_engine.tree import ROOT, TokenTree

METHODS = ["naive", "draft_verify", "ngram", "fuzzy"]
SCHEMA = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3},
    },
    "required": ["ok", "count", "tags"],
    "additionalProperties": False,
}
JSON = Grammar(kind="json_schema", text=json.dumps(SCHEMA))
DATE = Grammar(kind="regex", text=r"(19|20)[0-9]{2}-[01][0-9]")
LARK = Grammar(kind="lark", text='start: "<" NAME ("," NAME)* ">"\nNAME: /[a-c]{1,3}/')
PROMPT = list(range(60, 90)) * 2


def valid(grammar: Grammar, text: str) -> bool:
    if grammar.kind == "regex":
        return re.fullmatch(grammar.text, text) is not None
    if grammar is LARK:
        return re.fullmatch("<[a-c]+(,[a-c]+)*>", text) is not None
    jsonschema.validate(json.loads(text), SCHEMA)
    return True


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_every_method_answers_validly(load_engine, tiny_bundle, temperature):
    """Free and constrained sequences of all methods share a batch."""
    engine = load_engine(METHODS, tiny_bundle, max_context=512, kv_slots=512 * 16)
    asked = [(method, grammar) for method in METHODS for grammar in (JSON, DATE, LARK)]
    wishes = {"temperature": temperature, "seed": 5, "max_tokens": 300}
    # the ends of open-ended parts are likely enough even for random weights
    tokenizer = tiny_bundle.tokenizer()
    end = {tokenizer.encode(c, add_special_tokens=False)[0]: 6.0 for c in '>}],"'}
    jobs = [
        decode(engine, method, PROMPT, grammar=grammar, logit_bias=end, **wishes)
        for method, grammar in asked
    ]
    jobs += [decode(engine, method, PROMPT, max_tokens=20) for method in METHODS[:3]]
    *answers, one, two, three = await asyncio.gather(*jobs)
    for (method, grammar), answer in zip(asked, answers, strict=True):
        assert answer.finish == "stop", (method, grammar, answer.error, answer.text)
        assert valid(grammar, answer.text)
    assert one.tokens == two.tokens == three.tokens
    if temperature == 0.0:
        lossless = answers[:9]
        assert [a.tokens for a in lossless[0:3]] == [a.tokens for a in lossless[3:6]]
        assert [a.tokens for a in lossless[0:3]] == [a.tokens for a in lossless[6:9]]


async def test_drafts_are_accepted_within_a_grammar(load_engine, tiny_bundle: Bundle) -> None:
    engine = load_engine(["ngram"], tiny_bundle)
    prompt = tiny_bundle.tokenizer().encode("ab ab ab ab ab ab", add_special_tokens=False)
    answer = await decode(
        engine, "ngram", prompt, grammar=Grammar(kind="regex", text="(ab ){20}"), max_tokens=100
    )
    assert answer.text == "ab " * 20
    assert answer.stats.accepted_tokens > 0


def compiler() -> tuple[Any, GrammarCompiler]:
    tokenizer = demo_tokenizer()
    size = len(tokenizer)
    backend = tokenizer.backend_tokenizer.to_str()
    return tokenizer, GrammarCompiler(backend, size + 9, {tokenizer.eos_token_id})


TOKENIZER, COMPILER = compiler()


def started(grammar: Grammar) -> Constraint:
    end = {TOKENIZER.eos_token_id}
    return Constraint(COMPILER.start(grammar), len(TOKENIZER) + 9, end, COMPILER.raw)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab.x"), st.integers(-1, 8)), max_size=9))
def test_each_node_is_masked_along_its_own_ancestors(nodes: list[tuple[str, int]]) -> None:
    """A tree's masks equal those of a matcher that reads each node's path from the beginning."""
    pattern = Grammar(kind="regex", text=r"(ab|ba)*\.?")
    ids = {c: TOKENIZER.encode(c, add_special_tokens=False)[0] for c in "ab.x"}
    proposal = TokenTree()
    for token, parent in nodes:
        proposal.add(ids[token], min(parent, len(proposal) - 1))
    constraint = started(pattern)
    masks = constraint.masks(proposal)
    paths: list[str] = []
    texts = {ids[c]: c for c in ids}
    for node in range(len(proposal)):
        parent = proposal.parents[node]
        paths.append(("" if parent < 0 else paths[parent]) + texts[proposal.tokens[node]])
    for row, path in enumerate(["", *paths]):
        if re.fullmatch(r"((ab|ba)*\.?)|((ab|ba)*[ab])", path) is None:
            assert masks[row].all()
            continue
        alone = started(pattern)
        alone.advance([ids[c] for c in path])
        empty = TokenTree()
        assert np.array_equal(masks[row], alone.masks(empty)[0])
    assert np.array_equal(masks, constraint.masks(proposal))


def test_the_vocabulary_beyond_the_tokenizer_is_never_allowed() -> None:
    empty = TokenTree()
    [mask] = started(Grammar(kind="regex", text="(.|\n)*")).masks(empty)
    assert len(mask) == len(TOKENIZER) + 9
    assert not mask[len(TOKENIZER) :].any()
    assert mask[TOKENIZER.eos_token_id]


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        (Grammar(kind="json_schema", text="{"), "not JSON"),
        (Grammar(kind="json_schema", text='{"type": "objekt"}'), "objekt"),
        (Grammar(kind="regex", text="[ab"), "unclosed"),
        (Grammar(kind="lark", text="start: /[a"), "lexer error"),
    ],
)
async def test_malformed_grammars_are_refused(load_engine, tiny_bundle, grammar, said):
    engine = load_engine(["naive"], tiny_bundle)
    with pytest.raises(EngineRefusedError, match=said) as caught:
        await decode(engine, "naive", PROMPT, grammar=grammar)
    assert str(caught.value).startswith("grammar: ")


@pytest.mark.parametrize("options", ["", '%llguidance {"no_forcing": false}\n'])
async def test_text_that_goes_on_for_ever_is_not_looked_ahead_to(load_engine, tiny_bundle, options):
    """Nothing comes behind the b's: llguidance would look for their end in one mask."""
    engine = load_engine(["naive"], tiny_bundle)
    grammar = Grammar(kind="lark", text=options + 'start: /[0-9]{2}/ /b+/ "b"')
    answer = await asyncio.wait_for(
        decode(engine, "naive", PROMPT, grammar=grammar, max_tokens=20), 60
    )
    assert re.fullmatch("[0-9]{2}b+", answer.text)
    assert answer.finish == "length"


async def test_requests_do_not_wait_for_anothers_grammar(load_engine, tiny_bundle, monkeypatch):
    """One grammar is compiled until the others have their answers."""
    engine = load_engine(["naive"], tiny_bundle)
    answered, compiling, own = threading.Event(), threading.Event(), compiler_module.compiled

    def slow(grammar: Grammar, wrapped: Any) -> Any:
        if grammar == DATE:
            compiling.set()
            assert answered.wait(60)
        return own(grammar, wrapped)

    monkeypatch.setattr(compiler_module, "compiled", slow)
    waiting = asyncio.create_task(decode(engine, "naive", PROMPT, grammar=DATE, max_tokens=20))
    await asyncio.to_thread(compiling.wait, 60)
    digit = Grammar(kind="regex", text="[0-9]")
    others = [decode(engine, "naive", PROMPT, max_tokens=5, grammar=g) for g in (None, digit)]
    free, other = await asyncio.wait_for(asyncio.gather(*others), 60)
    assert len(free.tokens) == 5
    assert re.fullmatch("[0-9]", other.text)
    answered.set()
    assert valid(DATE, (await waiting).text)


def test_a_draft_that_leads_nowhere_changes_no_other_mask() -> None:
    """`x` may begin an answer and nothing may follow it: the mask before it cannot know."""
    grammar = Grammar(kind="lark", text='start: "x" T | "y"\nT: /a/ & /b/')
    ids = {c: TOKENIZER.encode(c, add_special_tokens=False)[0] for c in "xya"}
    tree = TokenTree()
    first = tree.add(ids["x"], ROOT)
    tree.add(ids["a"], first)
    tree.add(ids["y"], ROOT)
    masks = started(grammar).masks(tree)
    assert np.array_equal(masks[0], started(grammar).masks(TokenTree())[0])
    assert masks[0, ids["x"]]
    assert not masks[1].any()
    assert masks[3, TOKENIZER.eos_token_id]
    constraint = started(grammar)
    constraint.advance([ids["x"]])
    with pytest.raises(RequestFaultError, match="no token may follow"):
        constraint.masks(TokenTree())


def test_an_answer_does_not_pay_for_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks of draft nodes take 5 s each: after the first no other is computed, and the answer
    goes on through the same tokens."""
    constraint, costly = started(Grammar(kind="regex", text="(ab){4}")), 0
    own = AnswerMatcher.fill

    def fill(matcher: AnswerMatcher, bits: Any, row: int) -> None:
        nonlocal costly
        if row:
            costly += 1
            matcher._spent.seconds += 5.0
        own(matcher, bits, row)

    monkeypatch.setattr(AnswerMatcher, "fill", fill)
    a, b = (TOKENIZER.encode(c, add_special_tokens=False)[0] for c in "ab")
    for _ in range(4):
        tree = TokenTree()
        tree.add(b, tree.add(a, ROOT))
        masks = constraint.masks(tree)
        assert masks[0, a]
        assert not masks[1].any()
        constraint.advance([a, b])
    assert costly == 1
    assert constraint.masks(TokenTree())[0, TOKENIZER.eos_token_id]
