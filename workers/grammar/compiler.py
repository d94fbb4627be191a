"""Grammars compiled for a model's vocabulary."""

import asyncio
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from schemas import Grammar
from workers.engine import EngineRefusedError
from workers.grammar.specification import GrammarError, check_bounds, lark

CACHED = 64
"""Compiled grammars kept for requests that share one."""
SILENT, VERBOSE = 0, 2
"""llguidance's log levels: nothing, and everything, such as the compiled rules."""


def wrapped(tokenizer: str, vocab: int, end: Collection[int]) -> LLTokenizer:
    """Return llguidance's form of a tokenizer.

    tokenizer: the content of a tokenizer.json. vocab: rows of the logits, at least the tokenizer's
    tokens. end: ids of the tokens that end a response; those outside the vocabulary are left out.
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
    limits = LLParserLimits(verbose_errors=False)
    rules = LLMatcher.grammar_from_lark(lark(grammar))
    matcher = LLMatcher(tokenizer, rules, log_level=log_level, limits=limits)
    if matcher.is_error():
        raise GrammarError(_said(matcher.get_error(), grammar))
    return matcher


def _said(error: str, grammar: Grammar) -> str:
    """Return llguidance's message without the Lark rule that a schema was put into."""
    if grammar.kind in ("lark", "gbnf", "regex"):
        return error
    return error.partition("\n")[0].rpartition("failed to compile JSON schema: ")[2]


class GrammarCompiler:
    """Compiles grammars for one vocabulary and keeps the latest. Any thread may call it; one that
    compiles does not block the others."""

    def __init__(self, tokenizer: str, vocab: int, end: Collection[int]) -> None:
        """See `wrapped` for the arguments."""
        self._arguments = tokenizer, vocab, frozenset(end)
        self._lock = threading.Lock()
        self._compiled = lru_cache(CACHED)(lambda grammar: compiled(grammar, self._tokenizer))
        # Grammars wait for each other, and nothing else waits for them.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="grammar")

    async def begin(self, grammar: Grammar) -> LLMatcher:
        """Return what `start` does, from a thread. Raises EngineRefusedError for a malformed
        grammar."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self.start, grammar)
        except GrammarError as error:
            raise EngineRefusedError(f"grammar: {error}") from error

    def start(self, grammar: Grammar) -> LLMatcher:
        """Return a matcher at the beginning of a response. Raises GrammarError for a malformed
        grammar."""
        matcher = self._compiled(grammar)
        with self._lock:
            return matcher.deep_copy()

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        return wrapped(*self._arguments)

    def raw(self, token: int) -> bytes:
        """Return a token's bytes."""
        return bytes(self._tokenizer.decode_bytes([token]))
