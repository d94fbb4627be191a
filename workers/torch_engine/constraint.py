"""Where answers stand in their grammars, and which tokens may come next at every tree node."""

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Any

import llguidance.numpy
import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

from schemas import Grammar
from workers.grammar import GrammarError, specification
from workers.torch_engine.tree import ROOT, TokenTree

CACHED = 64
"""Compiled grammars kept for requests that share one."""


class Constraint:
    """One answer's matcher, at the last token that it was told of."""

    def __init__(self, matcher: LLMatcher, vocab: int, end: Collection[int]) -> None:
        self._matcher = matcher
        self._vocab = vocab
        self._end = end

    def advance(self, tokens: Sequence[int]) -> None:
        """Tokens were emitted; raises RuntimeError where the grammar does not allow them."""
        if not self._matcher.consume_tokens(list(tokens)):
            raise RuntimeError(f"grammar: {self._matcher.get_error()}")

    def masks(self, tree: TokenTree) -> NDArray[np.bool_]:
        """Whether each token may follow the root (row 0) and each node i (row i + 1): [n + 1,
        vocab].

        The matcher goes down every branch and back. Below a token that the grammar forbids, or
        that ends the answer, nothing can be kept: those rows allow everything.
        """
        bits = llguidance.numpy.allocate_token_bitmask(len(tree) + 1, self._vocab)
        self._visit(tree, ROOT, bits)
        unpacked = np.unpackbits(bits.view(np.uint8), axis=-1, bitorder="little")
        return unpacked[:, : self._vocab].astype(np.bool_)

    def _visit(self, tree: TokenTree, node: int, bits: NDArray[np.int32]) -> None:
        llguidance.numpy.fill_next_token_bitmask(self._matcher, bits, node + 1)
        if self._matcher.is_error():
            raise RuntimeError(f"grammar: {self._matcher.get_error()}")
        for child in tree.children(node):
            token = tree.tokens[child]
            allowed = (int(bits[node + 1, token // 32]) >> (token % 32)) & 1
            if allowed and token not in self._end:
                self.advance([token])
                self._visit(tree, child, bits)
                if not self._matcher.rollback(1):
                    raise RuntimeError(f"grammar: {self._matcher.get_error()}")


class GrammarCompiler:
    """Compiles grammars for one model's vocabulary; a grammar asked for again is copied."""

    def __init__(self, tokenizer: Any, vocab: int, end: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab = vocab
        self._end = frozenset(end)
        self._lock = threading.Lock()
        self._wrapped: LLTokenizer | None = None
        self._compiled: OrderedDict[Grammar, LLMatcher] = OrderedDict()

    def start(self, grammar: Grammar) -> Constraint:
        """A new answer's constraint (any thread; one that compiles takes a while, and others do not
        wait for it). Raises GrammarError for a malformed grammar."""
        with self._lock:
            known = self._compiled.get(grammar)
            wrapped = self._wrapped = self._wrapped or self._wrap()
        matcher = known or self._compile(grammar, wrapped)
        with self._lock:
            self._compiled[grammar] = matcher
            self._compiled.move_to_end(grammar)
            if len(self._compiled) > CACHED:
                self._compiled.popitem(last=False)
            copied = matcher.deep_copy()
        return Constraint(copied, self._vocab, self._end)

    def _compile(self, grammar: Grammar, wrapped: LLTokenizer) -> LLMatcher:
        matcher = LLMatcher(wrapped, specification(grammar), log_level=0)
        if matcher.is_error():
            raise GrammarError(matcher.get_error())
        return matcher

    def _wrap(self) -> LLTokenizer:
        size = len(self._tokenizer)
        end = sorted(token for token in self._end if token < self._vocab)
        if not end or size > self._vocab:
            raise GrammarError(
                f"the model's vocabulary of {self._vocab} must hold the tokenizer's {size} tokens "
                "and one that ends an answer"
            )
        backend: str = self._tokenizer.backend_tokenizer.to_str()
        return LLTokenizer(backend, n_vocab=self._vocab, eos_token=end)
