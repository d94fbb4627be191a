"""The chat layout of the demo family: the one place that turns messages into token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

ROLES = ("system", "user", "assistant")
JINJA = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


class ChatTokenizer(Protocol):
    """What `encode_chat` needs of a Hugging Face tokenizer."""

    def encode(
        self, text: str, *, add_special_tokens: bool, split_special_tokens: bool
    ) -> list[int]: ...

    def convert_tokens_to_ids(self, tokens: str) -> int: ...


class ChatFormatError(ValueError):
    """A message that the chat layout cannot express."""


def encode_text(tokenizer: ChatTokenizer, text: str) -> list[int]:
    """Plain text as token ids; the names of special tokens in it stay ordinary text."""
    return tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)


def encode_chat(
    tokenizer: ChatTokenizer,
    messages: Sequence[Mapping[str, Any]],
    add_generation_prompt: bool,
) -> list[int]:
    """`<|bos|>`, then per message `<|role|>` content `<|end|>`; `<|assistant|>` at the end when
    an answer is to follow. Content never yields a special token.

    Raises ChatFormatError for an unknown role.
    """
    special = tokenizer.convert_tokens_to_ids
    ids = [special("<|bos|>")]
    for index, message in enumerate(messages):
        role = message["role"]
        if role not in ROLES:
            raise ChatFormatError(
                f"messages[{index}].role is {role!r}: use one of {', '.join(ROLES)}"
            )
        ids.append(special(f"<|{role}|>"))
        ids.extend(encode_text(tokenizer, message["content"]))
        ids.append(special("<|end|>"))
    if add_generation_prompt:
        ids.append(special("<|assistant|>"))
    return ids
