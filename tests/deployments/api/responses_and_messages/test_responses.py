"""POST /v1/responses, with the openai package."""

import json

import openai
import pytest
from weather import CITIES
from weather import RESPONSES_TOOL as TOOL

from deployments.api.routes import IGNORED

LONG = {"extra_body": {"ignore_eos": True}}
ASKED = {"model": "tiny", "input": "hello", "max_output_tokens": 12, "temperature": 0}


async def streamed(client, **asked):
    return [event async for event in await client.responses.create(**asked, stream=True)]


async def test_a_text_is_answered_as_in_a_chat(tools_client):
    answer = await tools_client.responses.create(**ASKED, **LONG, instructions="Be brief.")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    chat = await tools_client.chat.completions.create(
        model="tiny", messages=messages, max_tokens=12, temperature=0, **LONG
    )
    assert answer.output_text == chat.choices[0].message.content
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (
        chat.usage.prompt_tokens,
        chat.usage.completion_tokens,
    )
    cut = chat.choices[0].finish_reason == "length"
    assert answer.status == ("incomplete" if cut else "completed")
    assert not cut or answer.incomplete_details.reason == "max_output_tokens"
    assert answer.store is False
    assert answer.instructions == "Be brief."


async def test_events_come_in_their_order_and_say_the_same(tools_client):
    whole = await tools_client.responses.create(**ASKED, **LONG)
    events = await streamed(tools_client, **ASKED, **LONG)
    kinds = [event.type for event in events]
    deltas = kinds.count("response.output_text.delta")
    assert deltas > 1
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * deltas,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        f"response.{whole.status}",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    final = events[-1].response
    assert text == final.output_text == whole.output_text
    assert final.usage.total_tokens == whole.usage.total_tokens
    assert events[0].response.output == []


async def test_a_function_is_called_and_its_result_is_read(tools_client):
    asked = ASKED | {"tools": [TOOL], "max_output_tokens": 100}
    choice = {"type": "function", "name": "get_weather"}
    answer = await tools_client.responses.create(**asked, tool_choice=choice)
    [call] = answer.output
    assert (call.type, call.name) == ("function_call", "get_weather")
    assert json.loads(call.arguments)["city"] in CITIES
    assert answer.tool_choice.name == "get_weather"
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"}
    items = [{"role": "user", "content": "hello"}, call.model_dump(), result]
    further = await tools_client.responses.create(**ASKED | {"input": items}, tools=[TOOL])
    assert further.usage.input_tokens > answer.usage.input_tokens
    events = await streamed(tools_client, **asked, tool_choice=choice)
    kinds = [event.type for event in events]
    assert "response.function_call_arguments.delta" in kinds
    assert kinds[-3:] == [
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    [same] = events[-1].response.output
    assert (same.name, same.arguments) == (call.name, call.arguments)


async def test_text_follows_a_schema(tools_client):
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    form = {"format": {"type": "json_schema", "name": "verdict", "schema": schema, "strict": True}}
    answer = await tools_client.responses.create(**ASKED | {"max_output_tokens": 60}, text=form)
    assert set(json.loads(answer.output_text)) == {"ok"}
    assert answer.text.format.type == "json_schema"


async def test_what_was_said_goes_back_in_as_items(tools_client):
    first = await tools_client.responses.create(**ASKED)
    items = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        *[item.model_dump(exclude_none=True) for item in first.output],
        {"role": "user", "content": "And now?"},
    ]
    answer = await tools_client.responses.create(
        **ASKED | {"input": items}, metadata={"purpose": "test"}, store=False, include=[]
    )
    assert answer.usage.input_tokens > first.usage.input_tokens
    assert answer.metadata == {"purpose": "test"}


async def test_the_first_turns_are_left_out_where_that_is_asked_for(tools_client):
    turns = [{"role": "user", "content": f"{n} many words " * 10} for n in range(12)]
    asked = ASKED | {"input": [*turns, {"role": "user", "content": "hello"}]}
    with pytest.raises(openai.BadRequestError) as caught:
        await tools_client.responses.create(**asked)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")
    answer = await tools_client.responses.create(**asked, truncation="auto")
    assert 200 < answer.usage.input_tokens <= 500
    assert answer.truncation == "auto"
    one = ASKED | {"input": "many words " * 500}
    with pytest.raises(openai.BadRequestError):
        await tools_client.responses.create(**one, truncation="auto")


async def test_unknown_fields_inside_of_fields_are_ignored_and_named(tools_ingress):
    asked = ASKED | {"speculation": {"off": True, "depth": 3}, "temprature": 1}
    response = await tools_ingress.http.post("/v1/responses", json=asked)
    assert response.status_code == 200, response.text
    assert response.headers[IGNORED] == "depth, temprature"
