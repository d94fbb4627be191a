"""Answers as Responses: the object, and its events in OpenAI's order."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from deployments.api.event_stream import Event
from deployments.api.tools.parser import Arguments, CallBroken, CallStart, Piece, Text, Thought
from deployments.errors import ApiError
from schemas import DecodeChunk

_PARTS = {"message": "output_text", "reasoning": "reasoning_text"}
"""The kind of an item's one part of text."""
_CALLS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}
"""The field of what a call passes on, and the events about it."""


class ResponseWriter:
    """Write one response's items: reasoning, messages of text and function calls."""

    def __init__(
        self,
        head: Mapping[str, Any],
        answer_id: str,
        names: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """head: the response's fields that the request decides. names: the fields that say which
        function of a namespace is called, by the name that the model writes."""
        self._id, self._names = answer_id, names
        self._output: list[dict[str, Any]] = []
        self._response: dict[str, Any] = {
            "id": f"resp_{answer_id}",
            "object": "response",
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            **head,
            "output": self._output,
            "usage": None,
        }
        self._events = 0
        self._open: dict[str, Any] | None = None

    def inspected(self, chunk: DecodeChunk) -> DecodeChunk:
        return chunk

    def begin(self, _: DecodeChunk | None, /) -> list[Event]:
        return [self._whole("response.created"), self._whole("response.in_progress")]

    def add(self, piece: Piece) -> list[Event]:
        match piece:
            case Text(text):
                return self._said("message", text)
            case Thought(text):
                return self._said("reasoning", text)
            case CallStart(id=id_, name=name, custom=custom):
                kind, prefix = ("custom_tool_call", "ctc") if custom else ("function_call", "fc")
                said = {"call_id": id_, "name": name, **self._names.get(name, {})}
                closed = self._closed("completed")
                return [*closed, self._added(kind, prefix, **said, **{_CALLS[kind][0]: ""})]
            case Arguments(text=text):
                assert self._open is not None
                field, events = _CALLS[self._open["type"]]
                self._open[field] += text
                return [self._of_item(f"{events}.delta", delta=text)]
            case CallBroken():
                return self._closed("incomplete")

    def end(self, finish: str, usage: Mapping[str, Any]) -> list[Event]:
        cut = finish == "length"
        events = [] if self._output else self._said("message", "")
        events += self._closed("incomplete" if cut else "completed")
        if cut:
            self._response["incomplete_details"] = {"reason": "max_output_tokens"}
        return [*events, self._ended("incomplete" if cut else "completed", usage)]

    def failed(self, error: ApiError) -> list[Event]:
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        self._response["error"] = {"code": code, "message": error.message}
        return [*self._closed("incomplete"), self._ended("failed", None)]

    def body(self) -> dict[str, Any]:
        return self._response

    def _said(self, kind: str, text: str) -> list[Event]:
        events = []
        if self._open is None or self._open["type"] != kind:
            events += self._closed("completed")
            part: dict[str, Any] = {"type": _PARTS[kind], "text": ""}
            if kind == "message":
                events.append(self._added(kind, "msg", role="assistant", content=[part]))
                part |= {"annotations": [], "logprobs": []}
            else:
                events.append(self._added(kind, "rs", summary=[], content=[part]))
            events.append(self._of_part("response.content_part.added", part=dict(part)))
        assert self._open is not None
        if text:
            self._open["content"][0]["text"] += text
            events.append(self._of_text("delta", delta=text))
        return events

    def _of_text(self, what: str, **fields: str) -> Event:
        """Return an event of the open item's text."""
        assert self._open is not None
        kind = _PARTS[self._open["type"]]
        more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
        return self._of_part(f"response.{kind}.{what}", **fields, **more)

    def _closed(self, status: str) -> list[Event]:
        """Return the events that end the open item, if there is one."""
        item = self._open
        if item is None:
            return []
        item["status"] = status
        events = []
        if item["type"] in _PARTS:
            part = item["content"][0]
            events.append(self._of_text("done", text=part["text"]))
            events.append(self._of_part("response.content_part.done", part=part))
        else:
            field, name = _CALLS[item["type"]]
            done = {"name": item["name"], field: item[field]}
            events.append(self._of_item(f"{name}.done", **done))
        index = len(self._output) - 1
        events.append(self._event("response.output_item.done", output_index=index, item=dict(item)))
        self._open = None
        return events

    def _added(self, kind: str, prefix: str, **fields: Any) -> Event:
        index = len(self._output)
        head = {"id": f"{prefix}_{self._id}_{index}", "type": kind, "status": "in_progress"}
        self._open = head | fields
        self._output.append(self._open)
        shown = {**self._open, "content": []} if kind in _PARTS else dict(self._open)
        return self._event("response.output_item.added", output_index=index, item=shown)

    def _ended(self, status: str, usage: Mapping[str, Any] | None) -> Event:
        self._response["status"] = status
        self._response["usage"] = None if usage is None else _usage(usage)
        return self._whole(f"response.{status}")

    def _whole(self, name: str) -> Event:
        return self._event(name, response={**self._response, "output": list(self._output)})

    def _of_item(self, name: str, /, **fields: Any) -> Event:
        assert self._open is not None
        item_id, index = self._open["id"], len(self._output) - 1
        return self._event(name, item_id=item_id, output_index=index, **fields)

    def _of_part(self, name: str, /, **fields: Any) -> Event:
        return self._of_item(name, content_index=0, **fields)

    def _event(self, name: str, /, **fields: Any) -> Event:
        event = {"type": name, "sequence_number": self._events, **fields}
        self._events += 1
        return name, event


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {
            "reasoning_tokens": usage["completion_tokens_details"]["reasoning_tokens"]
        },
        "total_tokens": usage["total_tokens"],
        "speculative": usage["speculative"],
    }
