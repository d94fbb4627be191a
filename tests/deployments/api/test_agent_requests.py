"""Requests of agents and SDKs: what they hand over that is not ours, and what comes of it."""

import json

import pytest
from asking import posted, reached, recorded
from service_here import ingress_here

from deployments.api.input import parse
from deployments.api.prompt_reader import PromptReader
from deployments.api.request_bodies import ChatRequest
from deployments.api.responses_and_messages.messages import MessagesRequest
from deployments.api.responses_and_messages.responses import ResponsesRequest
from deployments.api.routes import IGNORED
from deployments.errors import ApiError

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
HI = {"role": "user", "content": "hi"}
PATCH = {"type": "custom", "name": "apply_patch", "format": {"type": "text"}}
SPACE = {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}
WITHIN = "tools[0].tools[1].parameters"
CHOSEN = "tool_choice.tools[0].name"
FUNCTION = {"type": "function", "name": "w", "parameters": {"type": "object"}}


def body(path, **fields):
    most = "max_output_tokens" if path == RESPONSES else "max_tokens"
    said = {"input": "hi"} if path == RESPONSES else {"messages": [HI]}
    return {"model": "tiny", most: 5, **said, **fields}


async def test_a_larger_maximum_than_what_is_left_is_refused_where_it_is_so_configured(
    config, engine, encoder, tiny_bundle
):
    http = config.http.model_copy(update={"cap_max_tokens": False})
    reader = PromptReader(tiny_bundle, ["naive"], config.engine, http)
    made = await ingress_here(config, engine, encoder, reader)
    async with made.http:
        for path, field in ((CHAT, "max_tokens"), (RESPONSES, "max_output_tokens")):
            response = await made.http.post(path, json=body(path, **{field: 4000}))
            assert response.status_code == 400
            assert f"{field} may be at most 507" in response.json()["error"]["message"]
        ends = {str(reader.tokenizers.own.eos_token_id): 100}  # at once, not with the context
        asked = body(MESSAGES, max_tokens=4000, logit_bias=ends)
        response = await made.http.post(MESSAGES, json=asked)
        assert response.headers[IGNORED] == "max_tokens"


async def prompt_of(ingress, path, **fields):
    """The prompt that reaches the engine."""
    seen = reached(ingress)
    await posted(ingress, path, body(path, **fields))
    return ingress.reader.tokenizers.own.decode(seen[0].prompt_token_ids)


async def test_both_ends_of_a_stream_count_the_same_tokens(ingress):
    asked = body(MESSAGES, messages=[{"role": "user", "content": "A long prompt. " * 20}])
    counts = []
    for _ in range(2):
        response = await ingress.http.post(MESSAGES, json=asked | {"stream": True})
        datas = [json.loads(line[6:]) for line in response.text.split("\n") if "data: " in line]
        usages = [one.get("usage") or one.get("message", {}).get("usage") for one in datas]
        first, last = filter(None, usages)
        for name in ("input_tokens", "cache_read_input_tokens"):
            assert first[name] == last[name]
        counts.append(last)
    assert counts[1]["cache_read_input_tokens"] > counts[0]["cache_read_input_tokens"]
    assert len({one["input_tokens"] + one["cache_read_input_tokens"] for one in counts}) == 1


async def test_a_custom_tool_is_called_with_its_text(tools_ingress):
    """In Responses and in chats, whole and streamed; and what it was called with comes back."""
    call = {"name": "apply_patch", "arguments": {"input": '*** "a"\nb'}}
    recorded(tools_ingress, f"<tool_call>\n{json.dumps(call)}\n</tool_call>")
    asked = body(RESPONSES, tools=[PATCH], max_output_tokens=80)
    [item] = (await posted(tools_ingress, RESPONSES, asked))["output"]
    assert (item["type"], item["name"]) == ("custom_tool_call", "apply_patch")
    assert item["input"] == call["arguments"]["input"]
    response = await tools_ingress.http.post(RESPONSES, json=asked | {"stream": True})
    assert "event: response.custom_tool_call_input.done" in response.text
    output = {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "Done"}
    prompt = await prompt_of(tools_ingress, RESPONSES, tools=[PATCH], input=[HI, item, output])
    assert json.dumps(call["arguments"]["input"])[1:-1] in prompt
    assert "Done" in prompt
    custom = {"type": "custom", "custom": {"name": "apply_patch"}}
    chat = await posted(tools_ingress, CHAT, body(CHAT, tools=[custom], max_tokens=80))
    [same] = chat["choices"][0]["message"]["tool_calls"]
    assert same["custom"] == {"name": "apply_patch", "input": item["input"]}


async def test_a_function_of_a_namespace_is_called_by_its_own_name(tools_ingress):
    recorded(tools_ingress, '<tool_call>\n{"name": "n.f", "arguments": {}}\n</tool_call>')
    asked = body(RESPONSES, tools=[SPACE], max_output_tokens=80)
    [item] = (await posted(tools_ingress, RESPONSES, asked))["output"]
    assert (item["type"], item["namespace"], item["name"]) == ("function_call", "n", "f")
    assert "n.f" in await prompt_of(tools_ingress, RESPONSES, tools=[SPACE], input=[HI, item])


USE = {"name": "w", "input_schema": None}
WRONG = {"type": "function", "name": "f", "parameters": 5}


def allowed(*tools):
    return {"type": "allowed_tools", "mode": "auto", "tools": tools}


@pytest.mark.parametrize(
    ("kind", "fields", "named"),
    [
        (ResponsesRequest, {"tools": [SPACE, WRONG]}, "tools[1].parameters"),
        (ResponsesRequest, {"tools": [SPACE | {"tools": [FUNCTION, WRONG]}]}, WITHIN),
        (ResponsesRequest, {"tools": [SPACE | {"name": ""}]}, "tools[0].name"),
        (ResponsesRequest, {"tools": [SPACE | {"tools": 5}]}, "tools[0].tools"),
        (ResponsesRequest, {"tools": [{"type": "namespace"}]}, "tools[0].name"),
        (ResponsesRequest, {"tool_choice": allowed({"type": "function"})}, CHOSEN),
        (ResponsesRequest, {"text": {"format": {"type": "json_schema"}}}, "text.format.name"),
        (ResponsesRequest, {"store": True}, "store"),
        (MessagesRequest, {"tools": [PATCH, USE]}, "tools[0].input_schema"),
        (MessagesRequest, {"tools": [USE | {"input_schema": {}}, USE]}, "tools[1].input_schema"),
        (MessagesRequest, {"tools": [USE | {"input_schema": 5}]}, "tools[0].input_schema"),
    ],
)
def test_an_error_names_the_field_as_the_client_sent_it(kind, fields, named):
    path = RESPONSES if kind is ResponsesRequest else MESSAGES
    with pytest.raises(ApiError) as refused:
        parse(kind, json.dumps(body(path, **fields)).encode())
    assert refused.value.param == named
    assert named in refused.value.message


def test_an_empty_namespace_and_a_messages_function_are_read():
    for kind, path, tools, names in (
        (ResponsesRequest, RESPONSES, [{"type": "namespace", "name": "n"}, FUNCTION], ["w"]),
        (MessagesRequest, MESSAGES, [USE | {"type": "function", "input_schema": {}}], ["w"]),
    ):
        request = parse(kind, json.dumps(body(path, tools=tools)).encode())
        assert [tool.name for tool in request.chat.tools] == names


async def test_an_older_function_is_called_in_the_older_form(tools_ingress):
    recorded(tools_ingress, '<tool_call>\n{"name": "w", "arguments": {}}\n</tool_call>')
    asked = body(CHAT, functions=[{"name": "w"}], max_tokens=80)
    [choice] = (await posted(tools_ingress, CHAT, asked))["choices"]
    assert choice["finish_reason"] == "function_call"
    assert choice["message"]["function_call"] == {"name": "w", "arguments": "{}"}
    back = [HI, choice["message"], {"role": "function", "name": "w", "content": "18 degrees"}]
    assert "18 degrees" in await prompt_of(tools_ingress, CHAT, messages=back)


async def test_a_whole_response_has_the_items_of_its_stream(tools_ingress):
    call = '<tool_call>\n{"name": "w", "arguments": {}}\n</tool_call>'
    recorded(tools_ingress, f"Before.\n{call}\nAfter.")
    for path, tools in ((RESPONSES, [FUNCTION]), (MESSAGES, [{"name": "w", "input_schema": {}}])):
        asked = body(path, tools=tools) | {"max_tokens" if path == MESSAGES else "stop": 80}
        asked = {name: given for name, given in asked.items() if given != 80 or path == MESSAGES}
        made = await posted(tools_ingress, path, asked)
        kinds = [one["type"] for one in made["content" if path == MESSAGES else "output"]]
        text, use = ("text", "tool_use") if path == MESSAGES else ("message", "function_call")
        assert kinds == [text, use, text]


def test_all_parts_of_an_earlier_response_are_read():
    said = {"role": "assistant", "content": "a", "reasoning_content": "Well", "logprobs": None}
    asked = {"model": "m", "messages": [HI, said | {"annotations": [{"type": "url"}]}]}
    ignored = set()
    request = parse(ChatRequest, json.dumps(asked).encode(), ignored=ignored)
    assert request.messages[1].plain()["reasoning_content"] == "Well"
    assert ignored == set()


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
async def test_a_turn_reads_those_before_it_from_the_cache(tools_ingress, path):
    """Nothing that comes before the new question is written anew."""
    said, before = [], 0
    for turn in range(3):
        said.append({"role": "user", "content": f"Edit {turn}: " + "total = 1\n" * 16})
        field = "input" if path == RESPONSES else "messages"
        made = await posted(tools_ingress, path, body(path, **{field: said, "temperature": 0}))
        if path == CHAT:
            usage, spoken = made["usage"], [made["choices"][0]["message"]]
            read, cached = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
        elif path == RESPONSES:
            usage, spoken = made["usage"], made["output"]
            read, cached = usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
        else:
            usage, spoken = made["usage"], [{"role": "assistant", "content": made["content"]}]
            cached = usage["cache_read_input_tokens"]
            read = usage["input_tokens"] + cached
        assert cached >= 0.95 * before
        said, before = [*said, *spoken], read
