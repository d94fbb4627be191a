"""How model families write tool calls, as their documentation and chat templates show it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deployments.api.tools.reading import Events, Reader, json_calls, named_calls
from schemas.http import ToolParserName


@dataclass(frozen=True)
class Format:
    """Describe how a call is written: opener, one JSON object or a list of them, closer.

    openers: texts that a call may begin with; `{` begins one at the beginning of a line, where it
    is the call's own. closers: what may follow. begin, between, end: what a constrained answer has
    around its calls. arguments: the key of the arguments, empty if the name and the arguments
    stand side by side (`named`). several: whether the model makes more than one call.
    """

    openers: tuple[str, ...]
    closers: tuple[str, ...] = ()
    begin: str = ""
    between: str = ""
    end: str = ""
    arguments: str = "arguments"
    several: bool = True
    short_ids: bool = False

    def head(self, name: str) -> str:
        """Return what stands before the arguments of a constrained call."""
        if not self.arguments:
            return f"{name}[ARGS]"
        return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{self.arguments}": '

    @property
    def tail(self) -> str:
        """Return what stands after the arguments of a constrained call."""
        return "}" if self.arguments else ""

    def call(self, name: str, arguments: str) -> str:
        """Return a constrained call. arguments: JSON."""
        return f"{self.head(name)}{arguments}{self.tail}"

    def answer(self, calls: Sequence[str]) -> str:
        """Return a constrained answer of calls."""
        return f"{self.begin}{self.between.join(calls)}{self.end}"

    @property
    def marked(self) -> bool:
        """Return whether a call begins with what no other text begins with."""
        return "{" not in self.openers

    def reader(self, events: Events, opener: str) -> Reader[None]:
        """Return a reader of what stands behind an opener."""
        if opener == "[TOOL_CALLS]":
            return named_calls(events)
        return json_calls(events, language=opener == "```")


HERMES = Format(
    openers=("<tool_call>",),
    closers=("</tool_call>",),
    begin="<tool_call>\n",
    between="\n</tool_call>\n<tool_call>\n",
    end="\n</tool_call>",
)
"""Hermes 2 Pro and later, Qwen 2.5 and 3, SmolLM2's larger models."""
LLAMA3 = Format(
    openers=("<|python_tag|>", "{"), closers=(";",), arguments="parameters", several=False
)
"""Llama 3.1 to 3.3 and 4: JSON in place of a response."""
MISTRAL = Format(
    openers=("[TOOL_CALLS]",), begin="[TOOL_CALLS][", between=", ", end="]", short_ids=True
)
"""Mistral up to its tokenizer's version 7: a list behind a control token."""
MISTRAL_NAMED = Format(
    openers=("[TOOL_CALLS]",),
    begin="[TOOL_CALLS]",
    between="[TOOL_CALLS]",
    arguments="",
    short_ids=True,
)
"""Mistral from version 11 on: the name and its arguments behind each control token."""
FENCE = Format(
    openers=("```", "{"),
    closers=("```",),
    begin="```json\n",
    between="\n```\n```json\n",
    end="\n```",
)
"""JSON in a fence, or alone on its lines: what models without a format of their own write."""

FORMATS: Mapping[ToolParserName, Format] = {
    "hermes": HERMES,
    "llama3_json": LLAMA3,
    "mistral": MISTRAL,
    "json": FENCE,
}


_MARKERS: Mapping[str, ToolParserName] = {
    "<tool_call>": "hermes",
    "[TOOL_CALLS]": "mistral",
    "<|python_tag|>": "llama3_json",
    '"parameters": dictionary': "llama3_json",
}


def format_of(template: str, chosen: ToolParserName | None) -> Format:
    """Return the chosen format, else the one whose marker is in the chat template."""
    shown: ToolParserName = next((n for mark, n in _MARKERS.items() if mark in template), "json")
    name = chosen or shown
    return MISTRAL_NAMED if name == "mistral" and "[ARGS]" in template else FORMATS[name]
