"""Tokenisation of one prompt up to the number of tokens that it may have."""

from collections.abc import Callable

from deployments.errors import ApiError
from workers.chat_template import ChatTokenizer, encode_text

_BLOCK = 16 * 1024
"""Characters that are counted at a time."""
_CUT = 16
"""More tokens than a text cut in two may have more than the whole."""
_LONG = 6
"""Characters per token above which a text is likely to fit. Others are counted before they are
tokenised, which costs as much again."""

TooLong = Callable[[int], ApiError]
"""Returns the error for a prompt with at least so many tokens."""
Encode = Callable[[str], list[int]]


class TokenLimit:
    """Tokenise the pieces of a prompt, and stop once they have too many tokens.

    known: tokens of pieces by their text, which shorter forms of the prompt share.
    """

    def __init__(self, most: int, too_long: TooLong, known: dict[str, list[int]]) -> None:
        self._most, self._too_long, self._known = most, too_long, known
        self._tokens = 0

    def encode(self, tokenizer: ChatTokenizer, text: str) -> list[int]:
        """Return the token ids of the next piece. Raises what `too_long` returns."""
        ids = self._known.get(text)
        if ids is None:
            left = self._most - self._tokens
            check_beginning(text, lambda block: encode_text(tokenizer, block), left, self._error)
            ids = self._known[text] = encode_text(tokenizer, text)
        self._tokens += len(ids)
        if self._tokens > self._most:
            raise self._too_long(self._tokens)
        return ids

    def _error(self, tokens: int) -> ApiError:
        return self._too_long(self._tokens + tokens)


def check_beginning(text: str, encode: Encode, most: int, too_long: TooLong) -> None:
    """Raise what `too_long` returns if a text has more than `most` tokens, for certain.

    The cost is bounded by `most`, not by the text.
    """
    if len(text) <= max(_BLOCK, _LONG * most):
        return
    tokens = 0
    for at in range(0, len(text), _BLOCK):
        tokens += max(0, len(encode(text[at : at + _BLOCK])) - _CUT)
        if tokens > most:
            raise too_long(tokens)
