"""Grammar constraints: which tokens may follow every node of a draft tree."""

from collections.abc import Callable, Collection, Sequence

import llguidance.numpy
import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from workers.engine import RequestFaultError
from workers.grammar.answer_matcher import AnswerMatcher, Spent
from workers.torch_engine.tree import ROOT, TokenTree

MOST_FORMS = 32
"""Allowed tokens above which a text is taken to leave a choice."""
MOST_MASKS, FAST_SECONDS = 48, 0.001
"""Masks of one call of `forced`, and the mean seconds of a mask above which it is not worth its
time. All sequences of the batch wait for it."""


class Constraint:
    """One response's place in its grammar.

    end: tokens that end the response. raw: returns a token's bytes.
    """

    def __init__(
        self, matcher: LLMatcher, vocab: int, end: Collection[int], raw: Callable[[int], bytes]
    ) -> None:
        self._matcher = AnswerMatcher(matcher)
        self._drafts = Spent()
        self._vocab = vocab
        self._end = frozenset(end)
        self._raw = raw

    def advance(self, tokens: Sequence[int]) -> None:
        """Follow emitted tokens. Raises RequestFaultError if the grammar does not allow them."""
        self._matcher.advance(tokens)

    def forced(self, most: int) -> list[int]:
        """Return up to `most` tokens of the text that the grammar leaves no choice about.

        A forced text can be cut into tokens in many ways. Each token returned is the longest one.
        llguidance's own compute_ff_bytes does not return for text that goes on forever.
        """
        tokens, matcher = list[int](), self._matcher
        if matcher.mean_seconds > FAST_SECONDS:
            return []
        last = matcher.masks + MOST_MASKS
        try:
            while len(tokens) < most:
                token = self._longest(matcher, last)
                if token is None:
                    break
                tokens.append(token)
                if token in self._end:
                    break
                matcher = matcher.copy()
                matcher.advance([token])
        except RequestFaultError:
            pass  # verification finds it again
        return tokens

    def masks(self, tree: TokenTree) -> NDArray[np.bool_]:
        """Whether each token may follow the root (row 0) and each node i (row i + 1): [n + 1,
        vocab]. Raises RequestFaultError if no token may follow the root, or if the grammar costs
        too much there.

        The row of a node that the grammar cannot go on from allows nothing, as does that of a node
        reached after drafts have cost too much. Below these, and below a token that is forbidden or
        ends the response, nothing can be kept: those rows allow everything.
        """
        bits = llguidance.numpy.allocate_token_bitmask(len(tree) + 1, self._vocab)
        self._visit(self._matcher, tree, ROOT, bits)
        unpacked = np.unpackbits(bits.view(np.uint8), axis=-1, bitorder="little")
        return unpacked[:, : self._vocab].astype(np.bool_)

    def _longest(self, matcher: AnswerMatcher, last: int) -> int | None:
        """Return the longest token of a forced text, or None if the text is not forced or if this
        takes more masks than `last`, counted from the response's beginning.

        All other allowed tokens are its beginnings, and after each of them it has to go on.
        """
        if matcher.masks >= last:
            return None
        texts = self._allowed(matcher)
        longest = max(texts, key=lambda token: len(texts[token]), default=None)
        if longest is None or (len(texts) > 1 and not self._end.isdisjoint(texts)):
            return None
        whole = texts.pop(longest)
        if not all(whole.startswith(text) for text in texts.values()):
            return None
        if matcher.masks + len(texts) > last:
            return None
        for token, text in texts.items():
            shorter = matcher.copy()
            shorter.advance([token])
            rest = whole[len(text) :]
            after = self._allowed(shorter).values()
            if not after or not all(one[:1] == rest[:1] for one in after):
                return None
        return longest

    def _allowed(self, matcher: AnswerMatcher) -> dict[int, bytes]:
        """Return the allowed tokens with their bytes; none if there are more than MOST_FORMS."""
        allowed = matcher.allowed(self._vocab)
        forms = allowed.tolist() if len(allowed) <= MOST_FORMS else []
        return {token: self._raw(token) for token in forms}

    def _visit(
        self, matcher: AnswerMatcher, tree: TokenTree, node: int, bits: NDArray[np.int32]
    ) -> None:
        matcher.fill(bits, node + 1)
        row = bits[node + 1].view(np.uint32)
        for child in tree.children(node):
            token = tree.tokens[child]
            bit = np.uint32(1 << (token % 32))
            if not row[token // 32] & bit or token in self._end:
                continue
            if self._drafts.too_much:
                bits[child + 1] = 0
                continue
            # a matcher that has failed cannot be taken back; a response pays for its own tokens
            # only
            below = matcher.copy(self._drafts)
            try:
                below.advance([token])
                self._visit(below, tree, child, bits)
            except RequestFaultError:
                bits[child + 1] = 0
