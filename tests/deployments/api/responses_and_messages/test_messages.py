"""POST /v1/messages and its token count, with the anthropic package."""

import anthropic
import httpx2
import pytest
from asking import recorded
from weather import CITIES
from weather import MESSAGES_TOOL as TOOL

from deployments.guard.key_file import hash_of

HELLO = {"role": "user", "content": "hello"}
GREEDY = {"extra_body": {"temperature": 0}}
LONG = {"extra_body": {"temperature": 0, "ignore_eos": True}}
ASKED = {"model": "tiny", "messages": [HELLO], "max_tokens": 12}


@pytest.fixture
def client(tools_ingress):
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(tools_ingress.app))
    return anthropic.AsyncAnthropic(
        base_url="http://test", api_key="none", http_client=http, max_retries=0
    )


async def test_a_text_is_answered_as_in_a_chat(client, tools_client):
    answer = await client.messages.create(
        **ASKED, **LONG, system=[{"type": "text", "text": "Be brief."}]
    )
    messages = [{"role": "system", "content": "Be brief."}, HELLO]
    chat = await tools_client.chat.completions.create(
        model="tiny", messages=messages, max_tokens=12, temperature=0, **LONG
    )
    [block] = answer.content
    assert block.text == chat.choices[0].message.content
    assert answer.usage.output_tokens == chat.usage.completion_tokens
    read = answer.usage.input_tokens + answer.usage.cache_read_input_tokens
    assert read == chat.usage.prompt_tokens
    cut = chat.choices[0].finish_reason == "length"
    assert answer.stop_reason == ("max_tokens" if cut else "end_turn")


async def test_events_come_in_their_order_and_say_the_same(client):
    whole = await client.messages.create(**ASKED, **LONG)
    events = [event async for event in await client.messages.create(**ASKED, **LONG, stream=True)]
    kinds = [event.type for event in events]
    deltas = kinds.count("content_block_delta")
    assert deltas > 1
    assert kinds == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * deltas,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    async with client.messages.stream(**ASKED, **LONG) as stream:
        final = await stream.get_final_message()
    assert final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


async def test_a_tool_is_used_and_its_result_is_read(client):
    asked = ASKED | {"tools": [TOOL], "max_tokens": 100}
    choice = {"type": "tool", "name": "get_weather"}
    answer = await client.messages.create(**asked, **GREEDY, tool_choice=choice)
    [use] = answer.content
    assert (answer.stop_reason, use.type, use.name) == ("tool_use", "tool_use", "get_weather")
    assert use.input["city"] in CITIES
    async with client.messages.stream(**asked, **GREEDY, tool_choice=choice) as stream:
        same = await stream.get_final_message()
    assert (same.stop_reason, same.content[0].input) == ("tool_use", use.input)
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "18 degrees"}
    turns = [
        HELLO,
        {"role": "assistant", "content": [use.model_dump(exclude_none=True)]},
        {"role": "user", "content": [result, {"type": "text", "text": "So?"}]},
    ]
    further = ASKED | {"tools": [TOOL], "messages": turns}
    assert (await client.messages.create(**further)).usage.output_tokens > 0
    count = await client.messages.count_tokens(model="tiny", messages=turns, tools=[TOOL])
    first = await client.messages.count_tokens(model="tiny", messages=[HELLO], tools=[TOOL])
    assert count.input_tokens > first.input_tokens > 40


async def test_a_stop_sequence_is_named(client):
    text = (await client.messages.create(**ASKED, **LONG)).content[0].text
    stop = text[3:5]
    answer = await client.messages.create(**ASKED, **LONG, stop_sequences=["zzz", stop])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", stop)
    assert answer.content[0].text == text[: text.index(stop)]
    async with client.messages.stream(**ASKED, **LONG, stop_sequences=[stop]) as stream:
        final = await stream.get_final_message()
    assert (final.stop_sequence, final.content[0].text) == (stop, answer.content[0].text)


@pytest.mark.parametrize(("said", "stop"), [("a#b", None), ("a#b#", "#")])
async def test_a_stop_sequence_before_the_least_tokens_is_text(tools_ingress, client, said, stop):
    recorded(tools_ingress, said)
    for stream in (False, True):
        asked = ASKED | {"stop_sequences": ["#"]}
        if stream:
            async with client.messages.stream(**asked) as answering:
                answer = await answering.get_final_message()
        else:
            answer = await client.messages.create(**asked)
        assert (answer.content[0].text, answer.stop_sequence) == ("a#b", stop)


async def test_an_answer_that_is_begun_is_continued(client):
    begun = [HELLO, {"role": "assistant", "content": "The answer is"}]
    counts = [
        (await client.messages.count_tokens(model="tiny", messages=messages)).input_tokens
        for messages in (begun, [*begun, HELLO])
    ]
    assert counts[0] < counts[1]
    assert (await client.messages.create(**ASKED | {"messages": begun})).usage.output_tokens > 0


@pytest.mark.parametrize(
    ("fields", "status", "kind"),
    [
        ({"model": "gpt-4"}, 404, "not_found_error"),
        ({"messages": []}, 400, "invalid_request_error"),
        ({"temperature": 3}, 400, "invalid_request_error"),
        ({"tool_choice": {"type": "any"}}, 400, "invalid_request_error"),
        ({"container": "a"}, 400, "invalid_request_error"),
    ],
)
async def test_errors_have_anthropics_form(tools_ingress, fields, status, kind):
    response = await tools_ingress.http.post("/v1/messages", json=ASKED | fields)
    body = response.json()
    assert (response.status_code, body["type"], body["error"]["type"]) == (status, "error", kind)
    assert set(body["error"]) == {"type", "message"}
    got = await tools_ingress.http.get("/v1/messages")
    assert (got.status_code, got.json()["type"]) == (405, "error")


async def test_the_key_may_be_in_anthropics_header(behind_guard):
    keys = {"keys": [{"name": "app", "sha256": hash_of("app-key")}]}
    guarded = behind_guard(keys)()
    for headers, status in (({"x-api-key": "app-key"}, 400), ({"x-api-key": "no"}, 401), ({}, 401)):
        response = await guarded.post("/v1/messages", json={}, headers=headers)
        assert response.status_code == status
        assert response.json()["type"] == "error"
