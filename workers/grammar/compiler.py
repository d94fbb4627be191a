"""Grammars compiled for a model's vocabulary."""

import threading
from collections import OrderedDict
from collections.abc import Collection

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from schemas import Grammar
from workers.grammar.bounds import check_bounds
from workers.grammar.specification import GrammarError, specification

CACHED = 64
"""Compiled grammars kept for requests that share one."""
LEXER_FUEL = 250_000
"""A quarter of llguidance's default. It also bounds a mask behind which only one text can follow,
such as (a{1000}){1000}, which takes 0.8 s with the default. 9,000 enum values fit."""
SILENT, VERBOSE = 0, 2
"""llguidance's log levels: nothing, and everything, such as the compiled rules."""


def wrapped(tokenizer: str, vocab: int, end: Collection[int]) -> LLTokenizer:
    """Return llguidance's form of a tokenizer.

    tokenizer: the content of a tokenizer.json. vocab: rows of the logits, at least the tokenizer's
    tokens. end: ids of the tokens that end an answer; those outside the vocabulary are left out.
    Raises GrammarError if none is inside.
    """
    ends = sorted(token for token in end if token < vocab)
    if not ends:
        raise GrammarError(
            f"the model's vocabulary of {vocab} tokens must have one that ends an answer"
        )
    return LLTokenizer(tokenizer, n_vocab=vocab, eos_token=ends)


def compiled(grammar: Grammar, tokenizer: LLTokenizer, log_level: int = SILENT) -> LLMatcher:
    """Compile a grammar. Raises GrammarError if it exceeds a bound or is malformed."""
    check_bounds(grammar)
    limits = LLParserLimits(verbose_errors=False, initial_lexer_fuel=LEXER_FUEL)
    matcher = LLMatcher(tokenizer, specification(grammar), log_level=log_level, limits=limits)
    if matcher.is_error():
        raise GrammarError(matcher.get_error())
    return matcher


class GrammarCompiler:
    """Compiles grammars for one vocabulary and keeps the latest. Any thread may call it; one that
    compiles does not block the others."""

    def __init__(self, tokenizer: str, vocab: int, end: Collection[int]) -> None:
        """See `wrapped` for the arguments."""
        self._arguments = tokenizer, vocab, frozenset(end)
        self._lock = threading.Lock()
        self._tokenizer: LLTokenizer | None = None
        self._compiled: OrderedDict[Grammar, LLMatcher] = OrderedDict()

    def start(self, grammar: Grammar) -> LLMatcher:
        """Return a matcher at the beginning of an answer. Raises GrammarError for a malformed
        grammar."""
        with self._lock:
            known = self._compiled.get(grammar)
            self._tokenizer = self._tokenizer or wrapped(*self._arguments)
            tokenizer = self._tokenizer
        matcher = known or self._compile(grammar, tokenizer)
        with self._lock:
            self._compiled[grammar] = matcher
            self._compiled.move_to_end(grammar)
            if len(self._compiled) > CACHED:
                self._compiled.popitem(last=False)
            return matcher.deep_copy()

    def _compile(self, grammar: Grammar, tokenizer: LLTokenizer) -> LLMatcher:
        return compiled(grammar, tokenizer)
