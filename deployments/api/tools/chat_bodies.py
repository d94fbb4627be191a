"""Pieces and answers with reasoning and tool calls as OpenAI's chat bodies."""

from typing import Any

from deployments.api.tools.pieces import Arguments, Call, CallStart, Said, Text, Thought


def message(said: Said) -> dict[str, Any]:
    """Return a whole answer as a choice's message."""
    body: dict[str, Any] = {"role": "assistant", "content": said.text, "refusal": None}
    if said.reasoning:
        body["reasoning_content"] = said.reasoning
    if said.calls:
        body["content"] = said.text or None
        body["tool_calls"] = [_call(call) for call in said.calls]
    return body


def delta(piece: Text | Thought | CallStart | Arguments) -> dict[str, Any]:
    """Return a piece as a streamed choice's delta."""
    match piece:
        case Text(text):
            return {"content": text}
        case Thought(text):
            return {"reasoning_content": text}
        case CallStart(index, id=id_, name=name):
            return {"tool_calls": [{"index": index, **_call(Call(id_, name))}]}
        case Arguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
