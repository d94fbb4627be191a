"""Log probabilities in OpenAI's two shapes."""

from abc import ABC, abstractmethod
from codecs import getincrementaldecoder
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from schemas import DecodeChunk, TokenLogprobs
from workers.text import BROKEN, TokenText

Entry = tuple[int, TokenLogprobs]


class _Logprobs(ABC):
    """Write `choices[].logprobs`.

    hides_special: special tokens are not in the response's text, and so not here.
    """

    def __init__(self, tokens: TokenText, *, hides_special: bool = True) -> None:
        self._tokens, self._hides_special = tokens, hides_special
        self._decoder = getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0

    def of(self, chunk: DecodeChunk) -> dict[str, Any] | None:
        """Return the object of one chunk, which continues those before it.

        It is empty if no token is visible, and None without log probabilities.
        """
        if not chunk.logprobs:
            return None
        pairs = zip(chunk.token_ids, chunk.logprobs, strict=True)
        hidden = self._tokens.is_special if self._hides_special else lambda _: False
        return self._object([(token, said) for token, said in pairs if not hidden(token)])

    @abstractmethod
    def _object(self, entries: Sequence[Entry]) -> dict[str, Any]:
        """Return the object of tokens."""


class ChatLogprobs(_Logprobs):
    """Write those of /v1/chat/completions."""

    def _object(self, entries: Sequence[Entry]) -> dict[str, Any]:
        content = [
            self._token(token, said.chosen)
            | {"top_logprobs": [self._token(*one) for one in said.top]}
            for token, said in entries
        ]
        return {"content": content, "refusal": None}

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        return {**_written(self._tokens, token), "logprob": logprob}


class CompletionLogprobs(_Logprobs):
    """Write those of /v1/completions; offsets count characters of this response."""

    def of_prompt(self, tokens: Sequence[int], logprobs: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """Return the object of an echoed prompt, which comes first. Its first token has none."""
        rest = self._object(list(zip(tokens[1:], logprobs, strict=True)), tokens[:1])
        return rest | {name: [None, *rest[name]] for name in ("token_logprobs", "top_logprobs")}

    def _object(self, entries: Sequence[Entry], before: Sequence[int] = ()) -> dict[str, Any]:
        """Return the object of tokens, with the texts of those `before` them."""
        tokens, offsets = [*before, *(token for token, _ in entries)], []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(self._decoder.decode(self._tokens.raw(token)))
        return {
            "tokens": [self._text(token) for token in tokens],
            "token_logprobs": [said.chosen for _, said in entries],
            "top_logprobs": [self._top(token, said) for token, said in entries],
            "text_offset": offsets,
        }

    def _top(self, token: int, said: TokenLogprobs) -> dict[str, float]:
        """Return log probabilities by text, the token included; of equal texts the less probable
        ones go by their tokens' ids."""
        top: dict[str, float] = {}
        for other, logprob in {token: said.chosen, **dict(said.top)}.items():
            text = self._text(other)
            top[f"token_id:{other}" if text in top else text] = logprob
        return top

    def _text(self, token: int) -> str:
        """Return a token's text, or its bytes where they are only a part of a character."""
        text = str(_written(self._tokens, token)["token"])
        if BROKEN not in text:
            return text
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in self._tokens.raw(token))


def joined(first: dict[str, Any] | None, second: dict[str, Any] | None) -> dict[str, Any] | None:
    """Join two consecutive objects of either shape."""
    if first is None or second is None:
        return first or second
    return {
        name: values + second[name] if isinstance(values, list) else values
        for name, values in first.items()
    }


@lru_cache(maxsize=2**14)
def _written(tokens: TokenText, token: int) -> dict[str, Any]:
    """Return a token's text and bytes. A response may name a million alternatives."""
    return {"token": tokens.text(token), "logprob": 0.0, "bytes": list(tokens.raw(token))}
