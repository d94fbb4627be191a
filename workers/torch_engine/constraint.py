"""Grammar constraints: which tokens may follow every node of a draft tree."""

from collections.abc import Collection, Sequence

import llguidance.numpy
import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from workers.grammar.answer_matcher import AnswerMatcher, DeadEndError
from workers.torch_engine.tree import ROOT, TokenTree


class Constraint:
    """One answer's place in its grammar."""

    def __init__(self, matcher: LLMatcher, vocab: int, end: Collection[int]) -> None:
        self._matcher = AnswerMatcher(matcher)
        self._vocab = vocab
        self._end = end

    def advance(self, tokens: Sequence[int]) -> None:
        """Follow emitted tokens. Raises RequestFaultError if the grammar does not allow them."""
        self._matcher.advance(tokens)

    def masks(self, tree: TokenTree) -> NDArray[np.bool_]:
        """Whether each token may follow the root (row 0) and each node i (row i + 1): [n + 1,
        vocab]. Raises RequestFaultError if no token may follow the root, or if the grammar costs
        too much.

        A token after which the grammar allows none is forbidden. Below a token that is forbidden,
        or that ends the answer, nothing can be kept: those rows allow everything.
        """
        bits = llguidance.numpy.allocate_token_bitmask(len(tree) + 1, self._vocab)
        self._visit(self._matcher, tree, ROOT, bits)
        unpacked = np.unpackbits(bits.view(np.uint8), axis=-1, bitorder="little")
        return unpacked[:, : self._vocab].astype(np.bool_)

    def _visit(
        self, matcher: AnswerMatcher, tree: TokenTree, node: int, bits: NDArray[np.int32]
    ) -> None:
        matcher.fill(bits, node + 1)
        row, dead = bits[node + 1].view(np.uint32), None
        for child in tree.children(node):
            token = tree.tokens[child]
            bit = np.uint32(1 << (token % 32))
            if not row[token // 32] & bit or token in self._end:
                continue
            below = matcher.copy()  # a matcher that has failed cannot be taken back
            try:
                below.advance([token])
                self._visit(below, tree, child, bits)
            except DeadEndError as error:
                bits[child + 1], dead = -1, error
                row[token // 32] &= ~bit
        if dead is not None and not row.any():
            raise dead
