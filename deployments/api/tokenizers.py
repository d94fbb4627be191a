"""A bundle's tokenizers, for the event loop and for threads that read long texts up to a limit."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from deployments.api.fair_threads import FairThreads
from deployments.artifacts import read_template
from deployments.errors import ApiError
from deployments.guard.caller import Caller
from schemas.http import HttpConfig
from workers.bundle import Bundle
from workers.chat_template import ChatTokenizer, encode_text

# Shorter texts take less than half a millisecond, less than going to a thread and back may.
SHORT_BYTES = 2048
_THREADS = 2

_BLOCK = 16 * 1024
"""Characters that are counted at a time."""
_CUT = 16
"""More tokens than a text cut in two may have more than the whole."""
_LONG = 6
"""Characters per token above which a text is likely to fit. Others are counted before they are
tokenised, which costs as much again."""

Result = TypeVar("Result")
TooLong = Callable[[int], ApiError]
"""Returns the error for a prompt with at least so many tokens."""
Encode = Callable[[str], list[int]]


class Tokenizers:
    """Read texts, long ones away from the event loop and in turn by caller."""

    def __init__(self, bundle: Bundle, http: HttpConfig) -> None:
        self.own = bundle.tokenizer()
        """For the event loop."""
        # A fast tokenizer raises "Already borrowed" when two threads change its settings.
        copies = [bundle.tokenizer() for _ in range(_THREADS)]
        for tokenizer in (self.own, *copies):
            if http.chat_template is not None:
                tokenizer.chat_template = read_template(http.chat_template)
            encode_text(tokenizer, "")  # what is made once of each is not made for a request
        self._threads = FairThreads(copies, "tokenise")

    async def read(self, caller: Caller, size: int, call: Callable[[Any], Result]) -> Result:
        """Return what `call` makes of `size` bytes, given a tokenizer. The caller is charged for
        the time in a thread."""
        if size < SHORT_BYTES:
            return call(self.own)
        return await self._threads.run(caller.owner, size, call, caller.worked)


@dataclass
class TokenLimit:
    """Tokenise the pieces of a prompt, and stop once they have too many tokens.

    known: tokens of pieces by their text, which shorter forms of the prompt share.
    """

    most: int
    too_long: TooLong
    known: dict[str, list[int]] = field(default_factory=dict)
    tokens: int = 0

    def encode(self, tokenizer: ChatTokenizer, text: str) -> list[int]:
        """Return the token ids of the next piece. Raises what `too_long` returns."""
        ids = self.known.get(text)
        if ids is None:
            left = self.most - self.tokens
            check_beginning(text, lambda block: encode_text(tokenizer, block), left, self._error)
            ids = self.known[text] = encode_text(tokenizer, text)
        self.tokens += len(ids)
        if self.tokens > self.most:
            raise self.too_long(self.tokens)
        return ids

    def _error(self, tokens: int) -> ApiError:
        return self.too_long(self.tokens + tokens)


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
