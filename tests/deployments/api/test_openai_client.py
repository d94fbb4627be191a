"""What the openai package does on top of single requests: conversations, helpers, retries."""

import openai
import pytest
from asking import HELLO
from pydantic import BaseModel

GREEDY = HELLO | {"temperature": 0}


class Verdict(BaseModel):
    ok: bool


async def test_a_conversation_goes_on_with_the_packages_own_messages(openai_client):
    first = (await openai_client.chat.completions.create(**GREEDY)).choices[0].message
    parts = {"role": "user", "content": [{"type": "text", "text": "And now?"}]}
    asked = GREEDY | {"messages": [*HELLO["messages"], first, parts]}
    answer = await openai_client.chat.completions.create(**asked)
    assert answer.usage.prompt_tokens > 0


async def test_structured_output_is_parsed(openai_client):
    asked = GREEDY | {"max_tokens": 60}
    parsed = await openai_client.chat.completions.parse(**asked, response_format=Verdict)
    assert isinstance(parsed.choices[0].message.parsed, Verdict)


async def test_the_stream_helper_collects_the_answer(openai_client):
    whole = (await openai_client.chat.completions.create(**GREEDY)).choices[0].message.content
    async with openai_client.chat.completions.stream(**GREEDY) as stream:
        events = [event async for event in stream]
    assert {event.type for event in events} == {"chunk", "content.delta", "content.done"}
    assert events[-1].content == whole


async def test_a_missed_deadline_is_not_sent_again(openai_client):
    patient = openai_client.with_options(
        max_retries=5, default_headers={"x-specadapt-deadline-ms": "1"}
    )
    with pytest.raises(openai.APIStatusError) as caught:
        await patient.chat.completions.create(**GREEDY | {"max_tokens": 400})
    assert caught.value.code == "deadline_exceeded"
    assert caught.value.request.headers["x-stainless-retry-count"] == "0"
