"""The one place that turns messages into token ids: by the chat template that a tokenizer carries,
and so that what somebody writes never becomes a special token."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

ROLES = ("system", "user", "assistant")
_PRIVATE = range(0xF0000, 0xFFFFE)
"""Characters without a meaning; one that is in no message stands for a special token's name."""

Messages = Sequence[Mapping[str, Any]]


class ChatTokenizer(Protocol):
    """What is needed here of a Hugging Face tokenizer."""

    def __hash__(self) -> int: ...

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]: ...

    def encode(
        self, text: str, *, add_special_tokens: bool, split_special_tokens: bool
    ) -> list[int]: ...

    def apply_chat_template(
        self, conversation: Messages, *, tokenize: bool, add_generation_prompt: bool
    ) -> Any: ...


class ChatFormatError(ValueError):
    """Messages that the chat template cannot express."""


def encode_text(tokenizer: ChatTokenizer, text: str) -> list[int]:
    """Plain text as token ids; the names of special tokens in it stay ordinary text."""
    return tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)


def encode_chat(
    tokenizer: ChatTokenizer, messages: Messages, add_generation_prompt: bool
) -> list[int]:
    """What the tokenizer's chat template makes of the messages, with the beginning of an answer
    where one is to follow; the name of a special token in a message stays ordinary text.

    Raises ChatFormatError for an unknown role, for messages that the template refuses, and where
    the tokenizer has no template.
    """
    chat = _Rendered(tokenizer, messages)
    return chat.encode(chat.text(len(messages), add_generation_prompt))


def encode_turns(tokenizer: ChatTokenizer, messages: Messages) -> list[tuple[list[int], list[int]]]:
    """`encode_chat` of a conversation in its parts: of each message what is before an answer (all
    but an assistant's have none) and the rest of it. Raises ChatFormatError as `encode_chat` does,
    and where the template does not write messages one after another."""
    chat = _Rendered(tokenizer, messages)
    whole = ""
    turns = []
    for count, message in enumerate(messages, start=1):
        begun, whole = whole, chat.text(count, False)
        opened = chat.text(count - 1, True) if message["role"] == "assistant" else begun
        if not whole.startswith(opened) or not opened.startswith(begun):
            raise ChatFormatError("the chat template rewrites earlier messages")
        turns.append((chat.encode(opened[len(begun) :]), chat.encode(whole[len(opened) :])))
    return turns


class _Rendered:
    """Messages whose special tokens' names are hidden from the template and from the tokenizer."""

    def __init__(self, tokenizer: ChatTokenizer, messages: Messages) -> None:
        for index, message in enumerate(messages):
            if message["role"] not in ROLES:
                raise ChatFormatError(
                    f"messages[{index}].role is {message['role']!r}: use one of {', '.join(ROLES)}"
                )
        self._tokenizer = tokenizer
        self._ids, self._names = _special_tokens(tokenizer)
        contents = [str(message["content"]) for message in messages]
        said = {name for content in contents for name in self._names.findall(content)}
        free = (chr(code) for code in _PRIVATE if not any(chr(code) in c for c in contents))
        self._hidden = dict(zip(sorted(said), free, strict=False))
        self._messages = [
            {**message, "content": self._names.sub(lambda m: self._hidden[m[0]], content)}
            for message, content in zip(messages, contents, strict=True)
        ]

    def text(self, count: int, add_generation_prompt: bool) -> str:
        """The first `count` messages."""
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    self._messages[:count],
                    tokenize=False,
                    add_generation_prompt=add_generation_prompt,
                )
            )
        except Exception as error:  # Jinja's own, those that templates raise, and a missing one
            raise ChatFormatError(f"the chat template refuses these messages: {error}") from error

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        at = 0
        for found in self._names.finditer(text):
            ids += self._plain(text[at : found.start()])
            ids.append(self._ids[found[0]])
            at = found.end()
        return ids + self._plain(text[at:])

    def _plain(self, text: str) -> list[int]:
        for name, hidden in self._hidden.items():
            text = text.replace(hidden, name)
        return encode_text(self._tokenizer, text) if text else []


@lru_cache(maxsize=8)
def _special_tokens(tokenizer: ChatTokenizer) -> tuple[dict[str, int], re.Pattern[str]]:
    """Ids by name, and a pattern that finds the longest name first."""
    added = tokenizer.added_tokens_decoder
    ids = {token.content: index for index, token in added.items() if token.special}
    longest_first = sorted(ids, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first)) if ids else r"(?!)"
    return ids, re.compile(pattern)
