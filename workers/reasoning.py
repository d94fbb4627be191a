"""The reasoning that a model writes between think tags, apart from its response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workers.text import overlap

TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<seed:think>", "</seed:think>"),
    ("<reasoning>", "</reasoning>"),
)
"""Tags of chat templates: Qwen's, DeepSeek's and their like, and rarer ones."""
TAG_TOKENS = 64
"""Tokens of a prompt's end that may hold a tag, each of whose characters may be a token."""


@dataclass(frozen=True)
class Reasoning:
    """Where the reasoning of a response is.

    begin, end: the tags. opened: the prompt ends with the first of them, so that the response
    begins with reasoning. shown: whether the client wants to read it.
    """

    begin: str
    end: str
    opened: bool = False
    shown: bool = True


class Thinking:
    """Find the reasoning of a tokenizer's conversations, by the think tags of its chat template.

    There is none if the template has no tags, or if the response's text does not show them.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        template = str(tokenizer.chat_template or "")
        hidden = {t.content for t in tokenizer.added_tokens_decoder.values() if t.special}
        shown = (tags for tags in TAGS if not hidden & {*tags})
        self._tags = next((t for t in shown if t[0] in template and t[1] in template), None)

    def reasoning(self, prompt: Sequence[int], continued: str, *, shown: bool) -> Reasoning | None:
        """Return where the response to a prompt has its reasoning, None if nowhere.

        continued: the message that the response continues, if it continues one.
        """
        if self._tags is None:
            return None
        begin, end = self._tags
        text = str(self._tokenizer.decode(prompt[-TAG_TOKENS:])).rstrip()
        opened = text.endswith(begin) or continued.rfind(begin) > continued.rfind(end)
        return Reasoning(begin, end, opened, shown)


class Splitter:
    """Split a growing answer into reasoning and content.

    Only a block at the response's beginning is reasoning; tags elsewhere are content. Spaces and
    line ends around the block's text and before the content belong to neither. In whatever pieces
    the text comes, the parts are the same.
    """

    def __init__(self, reasoning: Reasoning) -> None:
        self._tags = reasoning
        self._place = "inside" if reasoning.opened else "before"
        self._held = ""
        self._said = False
        self.found = reasoning.opened
        """Whether the block has begun."""
        self.behind = 0
        """Characters behind the block, of the text with which it ended."""

    @property
    def thinks(self) -> bool:
        """Return whether the next text may be of the block."""
        return self._place in ("before", "inside")

    def push(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the content that are certain with this text."""
        if self._place == "content":
            return "", text
        self._held += text
        if self._place == "before" and not self._enters():
            return "", self._released() if self._place == "content" else ""
        reasoning = self._inside() if self._place == "inside" else ""
        return reasoning, self._after() if self._place == "after" else ""

    def finish(self) -> tuple[str, str]:
        """Return the withheld parts, once the response has ended."""
        held = self._released()
        if self._place == "inside":
            return (held if self._said else held.lstrip()).rstrip(), ""
        return "", "" if self._place == "after" else held

    def _enters(self) -> bool:
        """Return whether the block has begun; without one, all is content."""
        stripped = self._held.lstrip()
        if stripped.startswith(self._tags.begin):
            self._held, self._place = stripped[len(self._tags.begin) :], "inside"
            self.found = True
            return True
        if not self._tags.begin.startswith(stripped):
            self._place = "content"
        return False

    def _inside(self) -> str:
        text, found, rest = self._held.partition(self._tags.end)
        if found:
            self._held, self._place, self.behind = rest, "after", len(rest)
        else:
            text = text[: len(text) - overlap(text, self._tags.end)]
            self._held = self._held[len(text.rstrip()) :]
        text = text.rstrip()
        if not self._said:
            text = text.lstrip()
        self._said = self._said or bool(text)
        return text

    def _after(self) -> str:
        text = self._released().lstrip()
        if text:
            self._place = "content"
        return text

    def _released(self) -> str:
        held, self._held = self._held, ""
        return held
