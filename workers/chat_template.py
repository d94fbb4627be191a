"""Token ids of messages and prompts, by the tokenizer's chat template.

A control token is one that gives a conversation its form, such as `<|im_end|>` or `</think>`. The
chat template writes them, and so may the prompt of a completion. In a message their names are text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from tokenizers import Tokenizer

ROLES = ("system", "user", "assistant", "tool")
_PRIVATE = range(0xF0000, 0xFFFFE)
"""Unused characters, each of which may stand for a control token's name in messages."""

Messages = Sequence[Mapping[str, Any]]
RESERVED = frozenset(
    {
        *("add_generation_prompt", "chat_template", "continue_final_message", "conversation"),
        *("documents", "max_length", "messages", "padding", "return_assistant_tokens_mask"),
        *("return_dict", "return_tensors", "tokenize", "tokenizer_kwargs", "tools", "truncation"),
    }
)
"""Arguments of `apply_chat_template`, which are no variables of a template."""


ChatTokenizer = Any
"""A fast tokenizer of transformers."""
Encode = Callable[[ChatTokenizer, str], list[int]]


class ChatFormatError(ValueError):
    """Messages that the chat template cannot express."""


def encode_text(tokenizer: ChatTokenizer, text: str) -> list[int]:
    """Return the token ids of plain text, in which the names of control tokens are text."""
    # Unlike `encode` it lets go of Python's global lock, so that other threads go on.
    [found] = _control_tokens(tokenizer).plain.encode_batch_fast([text], add_special_tokens=False)
    return list(found.ids)


def encode_prompt(
    tokenizer: ChatTokenizer, text: str, add_special_tokens: bool = False
) -> list[int]:
    """Return the token ids of a prompt that is its own template: the names of control tokens in it
    become control tokens.

    add_special_tokens: also write what the tokenizer puts around a text, such as its first token.
    """
    ids: list[int] = tokenizer.encode(
        text, add_special_tokens=add_special_tokens, split_special_tokens=False
    )
    return ids


def encode_chat(
    tokenizer: ChatTokenizer,
    messages: Messages,
    add_generation_prompt: bool,
    continue_final_message: bool = False,
    variables: Mapping[str, Any] = MappingProxyType({}),
    encode: Encode = encode_text,
) -> list[int]:
    """Return the token ids of messages in the chat template, with the beginning of a response
    unless it is left out. The name of a special token in a message stays ordinary text.

    continue_final_message: end inside the last message, for a response that continues it.
    variables: of the template, none of them RESERVED but `tools`. encode: tokenises the texts
    between control tokens, in order, and may raise. Raises ChatFormatError for an unknown role, for
    messages that the template refuses, and where the tokenizer has no template.
    """
    chat, count = _Rendered(tokenizer, messages, variables), len(messages)
    if continue_final_message and count > 1 and not messages[-1]["content"].strip():
        # A template that trims contents would leave a part of the header out with the spaces.
        count, add_generation_prompt, continue_final_message = count - 1, True, False
    return chat.encode(chat.text(count, add_generation_prompt, continue_final_message), encode)


class _Rendered:
    """Messages and variables with the names of control tokens hidden in them."""

    def __init__(
        self, tokenizer: ChatTokenizer, messages: Messages, variables: Mapping[str, Any]
    ) -> None:
        for index, message in enumerate(messages):
            if message["role"] not in ROLES:
                raise ChatFormatError(
                    f"messages[{index}].role is {message['role']!r}: use one of {', '.join(ROLES)}"
                )
        self._tokenizer = tokenizer
        self._control = _control_tokens(tokenizer)
        messages = [{**message, "content": str(message["content"])} for message in messages]
        contents = list(_texts([messages, list(variables.values())]))
        said = {found for content in contents for found in self._control.names.findall(content)}
        taken = set("".join(contents)) if said else set()
        free = (char for char in map(chr, _PRIVATE) if char not in taken)
        self._hidden = dict(zip(sorted(said), free, strict=False))
        if len(self._hidden) < len(said):
            raise ChatFormatError(
                "the messages hold every private character (U+F0000 to U+FFFFD): leave one out"
            )
        self._messages = [_changed(message, self._hide) for message in messages]
        self._variables = {name: _changed(of, self._hide) for name, of in variables.items()}
        for name in sorted(said):
            if name in str(tokenizer.chat_template):
                self._show_if_read(name)

    def text(self, count: int, add_generation_prompt: bool, continues: bool) -> str:
        """Return the first `count` messages."""
        return self._rendered(self._messages[:count], add_generation_prompt, continues)

    def encode(self, text: str, encode: Encode) -> list[int]:
        ids: list[int] = []
        at = 0
        for found in [*self._control.written.finditer(text), None]:
            plain = text[at : found.start() if found else len(text)]
            ids += encode(self._tokenizer, self._unhidden(plain)) if plain else []
            if found:
                ids.append(self._control.ids[found[0].strip()])
                at = found.end()
        return ids

    def _hide(self, text: str) -> str:
        return self._control.names.sub(lambda found: self._hidden[found[0]], text)

    def _show_if_read(self, name: str) -> None:
        """Show the template a name in the assistant's messages if the template looks for it, for
        example to drop the thoughts before `</think>`."""
        shown = [
            {**message, "content": message["content"].replace(self._hidden[name], name)}
            if message["role"] == "assistant"
            else message
            for message in self._messages
        ]
        if shown == self._messages:
            return
        seen, unseen = (self._unhidden(self._rendered(m, False)) for m in (shown, self._messages))
        if seen != unseen:
            self._messages = shown

    def _rendered(
        self, messages: Messages, add_generation_prompt: bool, continues: bool = False
    ) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    messages,
                    tokenize=False,
                    add_generation_prompt=add_generation_prompt,
                    continue_final_message=continues,
                    **self._variables,
                )
            )
        except Exception as error:  # Jinja's own, those that templates raise, and a missing one
            raise ChatFormatError(f"the chat template refuses these messages: {error}") from error

    def _unhidden(self, text: str) -> str:
        for name, hidden in self._hidden.items():
            text = text.replace(hidden, name)
        return text


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a value of JSON, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts(inner)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value of JSON with every text in it changed, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): _changed(inner, change) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [_changed(inner, change) for inner in value]
    return value


class _ControlTokens(NamedTuple):
    """The control tokens of one tokenizer.

    ids: by name. names: finds one, the longest first. written: the same where a template writes
    it, with the spaces that the tokenizer takes off with it. plain: the tokenizer as it reads text,
    with no control tokens.
    """

    ids: Mapping[str, int]
    names: re.Pattern[str]
    written: re.Pattern[str]
    plain: Tokenizer


@lru_cache(maxsize=8)
def _control_tokens(tokenizer: ChatTokenizer) -> _ControlTokens:
    added = {
        token.content: (index, token)
        for index, token in tokenizer.added_tokens_decoder.items()
        if _is_control(token.content, token.special)
    }
    longest_first = sorted(filter(str.strip, added), key=len, reverse=True)
    written = (
        # Spaces are tried from their first one only: their number squared would be too slow.
        r"(?:(?<!\s)\s+)?" * added[name][1].lstrip
        + re.escape(name)
        + r"\s*" * added[name][1].rstrip
        for name in longest_first
    )
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    for token in backend["added_tokens"]:
        token["special"] = _is_control(token["content"], token["special"])
    plain = Tokenizer.from_str(json.dumps(backend))
    plain.encode_special_tokens = True
    return _ControlTokens(
        {name.strip(): added[name][0] for name in longest_first},
        re.compile("|".join(map(re.escape, longest_first)) or r"(?!)"),
        re.compile("|".join(written) or r"(?!)"),
        plain,
    )


def _is_control(name: str, special: bool) -> bool:
    """Return whether an added token is a control token. Tokenizers also add words and runs of
    spaces as ordinary text, without marking them special."""
    return special or not all(char.isalnum() or char.isspace() for char in name)
