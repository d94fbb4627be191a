"""Where answers stand in their grammars, and which tokens may come next at every tree node."""

from collections.abc import Collection, Sequence

import llguidance.numpy
import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from workers.grammar.answer_matcher import AnswerMatcher
from workers.torch_engine.tree import ROOT, TokenTree


class Constraint:
    """One answer's matcher, at the last token that it was told of."""

    def __init__(self, matcher: LLMatcher, vocab: int, end: Collection[int]) -> None:
        self._matcher = AnswerMatcher(matcher)
        self._vocab = vocab
        self._end = end

    def advance(self, tokens: Sequence[int]) -> None:
        """Follow emitted tokens. Raises RequestFaultError if the grammar does not allow them."""
        self._matcher.advance(tokens)

    def masks(self, tree: TokenTree) -> NDArray[np.bool_]:
        """Whether each token may follow the root (row 0) and each node i (row i + 1): [n + 1,
        vocab]. Raises RequestFaultError if no token may follow the root or a node, or if the
        grammar costs too much.

        The matcher goes down every branch and back. Below a token that the grammar forbids, or
        that ends the answer, nothing can be kept: those rows allow everything.
        """
        bits = llguidance.numpy.allocate_token_bitmask(len(tree) + 1, self._vocab)
        self._visit(tree, ROOT, bits)
        unpacked = np.unpackbits(bits.view(np.uint8), axis=-1, bitorder="little")
        return unpacked[:, : self._vocab].astype(np.bool_)

    def _visit(self, tree: TokenTree, node: int, bits: NDArray[np.int32]) -> None:
        self._matcher.fill(bits, node + 1)
        for child in tree.children(node):
            token = tree.tokens[child]
            allowed = (int(bits[node + 1, token // 32]) >> (token % 32)) & 1
            if allowed and token not in self._end:
                self._matcher.advance([token])
                self._visit(tree, child, bits)
                self._matcher.back()
