"""Tool calls over HTTP, with the openai package: constrained by a grammar, or recorded answers."""

import json

import pytest
from asking import HELLO, posted, recorded
from weather import CHAT_TOOL as WEATHER
from weather import CITIES

from deployments.api.input import parse
from deployments.api.request_bodies import ChatRequest
from deployments.guard.caller import Caller

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "boolean"}}},
    },
}
ASKED = HELLO | {"max_tokens": 100, "tools": [WEATHER, ADD], "temperature": 0}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def named(name):
    return {"type": "function", "function": {"name": name}}


async def test_a_named_function_is_called_by_its_schema(tools_client):
    answer = await tools_client.chat.completions.create(
        **ASKED, tool_choice=named("get_weather"), seed=3
    )
    [choice] = answer.choices
    assert choice.finish_reason == "stop"  # as OpenAI's: the call was no decision
    assert choice.message.content is None
    [call] = choice.message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments)["city"] in CITIES


@pytest.mark.parametrize("parallel", [True, False])
async def test_some_function_is_called_where_a_call_is_required(tools_client, parallel):
    asked = ASKED | {"tool_choice": "required", "temperature": 1, "seed": 1, "n": 2}
    answer = await tools_client.chat.completions.create(**asked, parallel_tool_calls=parallel)
    for choice in answer.choices:
        if choice.finish_reason == "length":  # a random model may repeat calls without end
            continue
        assert choice.finish_reason == "tool_calls"
        calls = choice.message.tool_calls
        assert parallel or len(calls) == 1
        assert {call.function.name for call in calls} <= {"get_weather", "add"}
        assert all(isinstance(json.loads(call.function.arguments), dict) for call in calls)


async def test_streamed_calls_say_the_same(tools_client):
    asked = ASKED | {"tools": [WEATHER], "tool_choice": named("get_weather")}
    whole = await tools_client.chat.completions.create(**asked)
    async with tools_client.chat.completions.stream(
        **asked, stream_options={"include_usage": True}
    ) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_completion()
    [call], [expected] = final.choices[0].message.tool_calls, whole.choices[0].message.tool_calls
    assert call.function.arguments == expected.function.arguments
    assert call.function.name == expected.function.name
    assert final.choices[0].finish_reason == "stop"
    assert final.usage.completion_tokens == whole.usage.completion_tokens
    kinds = [event.type for event in events]
    assert "tool_calls.function.arguments.delta" in kinds
    assert "tool_calls.function.arguments.done" in kinds
    assert not final.choices[0].message.content


async def test_what_a_model_says_is_read_where_it_may_call(tools_ingress, tools_client):
    recorded(tools_ingress, f"Let me see.\n{CALL}")
    answer = await tools_client.chat.completions.create(**ASKED)
    message = answer.choices[0].message
    assert message.content == "Let me see."
    assert [call.function.arguments for call in message.tool_calls] == ['{"city": "Paris"}']
    stream = await tools_client.chat.completions.create(**ASKED, stream=True)
    deltas = [chunk.choices[0] async for chunk in stream]
    assert "".join(one.delta.content or "" for one in deltas) == "Let me see."
    calls = [call for one in deltas for call in one.delta.tool_calls or ()]
    assert (calls[0].function.name, calls[0].index) == ("get_weather", 0)
    assert all(call.function.name is None and call.id is None for call in calls[1:])
    assert "".join(call.function.arguments for call in calls) == '{"city": "Paris"}'
    assert [one.finish_reason for one in deltas if one.finish_reason] == ["tool_calls"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize(
    "call",
    [
        r'{"name": "add", "arguments": {"a": "\ud800"}}',
        r'{"name": "\ud800", "arguments": {}}',
        r'{"name": "add", "arguments": "{\"a\": \"\\ud800\"}"}',
        '{"name": "add", "arguments": {"a": NaN}}',
        '{"name": "add", "arguments": {"a": -1e999}}',
    ],
)
async def test_what_no_response_can_hold_is_no_call(tools_ingress, path, call):
    answer = f"<tool_call>{call}</tool_call>"
    recorded(tools_ingress, answer)
    tool = {"name": "add", "input_schema": {}}
    asked = ASKED if path.endswith("completions") else ASKED | {"tools": [tool]}
    body = await posted(tools_ingress, path, asked)
    if path == "/v1/messages":
        assert body["content"] == [{"type": "text", "text": answer}]
    else:
        assert body["choices"][0]["message"]["content"] == answer
    response = await tools_ingress.http.post(path, json=asked | {"stream": True})
    assert response.text.rstrip().endswith(('"type":"message_stop"}', "[DONE]"))


@pytest.mark.parametrize("fields", [{"tool_choice": "none"}, {"tools": []}])
async def test_nothing_is_read_where_nothing_may_be_called(tools_ingress, tools_client, fields):
    recorded(tools_ingress, CALL)
    answer = await tools_client.chat.completions.create(**ASKED | fields)
    assert answer.choices[0].message.content == CALL
    assert answer.choices[0].finish_reason in ("stop", "length")


async def test_a_conversation_is_known_again_after_a_call(tools_ingress, tools_client):
    recorded(tools_ingress, CALL)
    answer = await tools_client.chat.completions.create(**ASKED | {"model": "tiny:ngram"})
    message = answer.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "18 degrees"}
    messages = [*HELLO["messages"], message.model_dump(), result]
    further = parse(ChatRequest, json.dumps(ASKED | {"messages": messages}).encode())
    prompt = await tools_ingress.reader.chat(further, Caller())
    known = tools_ingress.answerer._conversations
    assert known.method(prompt.scope, prompt.conversation) == "ngram"


async def test_a_template_without_tools_is_told_of_them_in_its_system_message(ingress):
    seen = {}
    for choice in ("none", "required"):
        asked = ASKED | {"tool_choice": choice, "return_token_ids": True, "tools": [WEATHER]}
        asked |= {"parallel_tool_calls": False}
        body = await posted(ingress, "/v1/chat/completions", asked)
        seen[choice] = ingress.reader.tokenizers.own.decode(body["prompt_token_ids"])
    assert "get_weather" not in seen["none"]
    assert "get_weather" in seen["required"]
    [call] = body["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["city"] in CITIES


async def test_a_strict_schema_that_cannot_be_enforced_is_refused(tools_ingress):
    wrong = {"type": "object", "properties": {"a": {"type": "nothing"}}}
    for strict, status in ((True, 400), (False, 200)):
        function = {"name": "f", "parameters": wrong, "strict": strict}
        tools = [{"type": "function", "function": function}]
        asked = ASKED | {"tools": tools, "tool_choice": "required"}
        response = await tools_ingress.http.post("/v1/chat/completions", json=asked)
        assert response.status_code == status
    response = await tools_ingress.http.post("/v1/chat/completions", json=asked | {"tools": []})
    assert response.json()["error"]["param"] == "tool_choice"
