"""What following a grammar may cost, and how an answer that cannot go on says so."""

import llguidance.numpy
import pytest
from conftest_bundle import demo_tokenizer

from schemas import Grammar
from workers.engine import RequestFaultError
from workers.grammar import answer_matcher
from workers.grammar.answer_matcher import AnswerMatcher
from workers.grammar.compiler import GrammarCompiler

TOKENIZER = demo_tokenizer()
VOCAB = len(TOKENIZER)
COMPILER = GrammarCompiler(TOKENIZER.backend_tokenizer.to_str(), VOCAB, [TOKENIZER.eos_token_id])


def started(pattern):
    return AnswerMatcher(COMPILER.start(Grammar(kind="regex", text=pattern)))


def filled(matcher):
    bits = llguidance.numpy.allocate_token_bitmask(1, VOCAB)
    matcher.fill(bits, 0)
    return bits


def ids(text):
    return TOKENIZER.encode(text, add_special_tokens=False)


def test_masks_that_take_too_long_end_the_answer(monkeypatch):
    matcher = started("[0-9]{8}")
    filled(matcher)
    monkeypatch.setattr(answer_matcher, "BURST_SECONDS", 0.0)
    monkeypatch.setattr(answer_matcher, "SECONDS_PER_MASK", 0.0)
    with pytest.raises(RequestFaultError, match="too slow to follow: 2 masks"):
        filled(matcher)


def test_steps_that_take_too_long_end_the_answer(monkeypatch):
    matcher = started("[0-9]{8}")
    clock = iter([0.0, 0.0, 0.0, 5.0, 5.0, 5.0])  # the step from one mask to the next takes 5 s
    monkeypatch.setattr(answer_matcher.time, "thread_time", lambda: next(clock))
    filled(matcher)
    matcher.advance(ids("1"))
    with pytest.raises(RequestFaultError, match="too slow to follow: 2 masks"):
        filled(matcher)


def test_a_copy_goes_on_with_what_was_spent(monkeypatch):
    matcher = started("[0-9]{8}")
    filled(matcher)
    monkeypatch.setattr(answer_matcher, "BURST_SECONDS", 0.0)
    monkeypatch.setattr(answer_matcher, "SECONDS_PER_MASK", 0.0)
    with pytest.raises(RequestFaultError, match="2 masks"):
        filled(matcher.copy())


def test_a_token_that_is_not_allowed_ends_the_answer():
    matcher = started("ab")
    matcher.advance(ids("a"))
    with pytest.raises(RequestFaultError, match="after 1 tokens"):
        matcher.advance(ids("c"))


def test_one_step_back_is_as_if_it_had_not_been_taken():
    matcher = started("a(b|c)")
    before = filled(matcher).copy()
    matcher.advance(ids("a"))
    matcher.back()
    assert (filled(matcher) == before).all()


def test_an_answer_may_end_where_the_grammar_does():
    matcher = started("ab?")
    filled(matcher)
    assert not matcher.ended
    matcher.advance(ids("a"))
    filled(matcher)
    assert matcher.ended
