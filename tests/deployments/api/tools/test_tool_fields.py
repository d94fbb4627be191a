"""What a request offers to call, and which error names what it cannot ask for."""

import json

import pytest

from deployments.api.input import parse
from deployments.api.messages import plain_messages
from deployments.api.request_bodies import ChatRequest

ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
NOW = {"type": "function", "function": {"name": "now", "description": "The time"}}


def named(name):
    return {"type": "function", "function": {"name": name}}


def chat(messages=None, **fields):
    body = {"model": "m", "messages": messages or [{"role": "user", "content": "hello"}]} | fields
    return parse(ChatRequest, json.dumps(body).encode())


def offer(**fields):
    return chat(**{"tools": [ADD, NOW]} | fields).offer


def allowed(mode, *names):
    tools = [named(name) for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize(
    ("choice", "names", "required", "several"),
    [
        (None, {"add", "now"}, False, True),
        ("auto", {"add", "now"}, False, True),
        ("none", set(), False, True),
        ("required", {"add", "now"}, True, True),
        (named("now"), {"now"}, True, False),
        (allowed("auto", "add"), {"add"}, False, True),
        (allowed("required", "add"), {"add"}, True, True),
    ],
)
def test_a_choice_says_what_may_and_must_be_called(choice, names, required, several):
    made = offer(tool_choice=choice)
    assert (made.names, made.required, made.several) == (names, required, several)
    assert len(made.tools) == 2
    assert offer(tool_choice=choice, parallel_tool_calls=False).several in (False, several)


def test_without_tools_nothing_is_offered():
    for fields in ({}, {"tools": []}, {"tool_choice": "auto"}, {"tool_choice": "none"}):
        assert not chat(**fields).offer.callable


def test_a_template_gets_tools_as_openai_writes_them():
    shown = [tool.for_template() for tool in offer().tools]
    nothing = {"type": "object", "properties": {}, "additionalProperties": False}
    assert shown == [
        ADD,
        {"type": "function", "function": NOW["function"] | {"parameters": nothing}},
    ]


def test_a_conversation_with_calls_and_results():
    calls = [
        {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
        {"id": "2", "type": "function", "function": {"name": "now", "arguments": ""}},
    ]
    asked = chat(
        [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "2"}]},
            {"role": "tool", "tool_call_id": "9", "content": "?"},
        ]
    )
    messages = plain_messages(asked.messages)
    said, called = messages[1]["content"], messages[1]["tool_calls"]
    assert said == ""
    assert [call["function"]["arguments"] for call in called] == [{"a": 1}, {}]
    assert messages[2:] == [
        {"role": "tool", "content": "2", "tool_call_id": "1", "name": "add"},
        {"role": "tool", "content": "?", "tool_call_id": "9"},
    ]
