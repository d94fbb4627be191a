"""Clients that call tools, against the running service: OpenAI's, Anthropic's, the Agents SDK."""

import json
from typing import Literal

import anthropic
import openai
import pytest
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool

CITIES = ("Paris", "Oslo")
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": list(CITIES)}},
    "required": ["city"],
    "additionalProperties": False,
}
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def client(base):
    return openai.OpenAI(base_url=base, api_key="none", max_retries=0)


def test_openais_tools_are_streamed_as_they_are_whole(client):
    function = {"name": "get_weather", "parameters": SCHEMA, "strict": True}
    asked = {
        "model": "tiny",
        "messages": HELLO,
        "max_tokens": 100,
        "temperature": 0,
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
    }
    [whole] = client.chat.completions.create(**asked).choices
    assert whole.finish_reason == "tool_calls"
    [call] = whole.message.tool_calls
    assert json.loads(call.function.arguments)["city"] in CITIES
    with client.chat.completions.stream(**asked) as stream:
        [streamed] = stream.get_final_completion().choices
    [same] = streamed.message.tool_calls
    assert same.function.arguments == call.function.arguments


def test_anthropics_tools_are_streamed_as_they_are_whole(service):
    client = anthropic.Anthropic(base_url=service.url, api_key="none", max_retries=0)
    asked = {
        "model": "tiny",
        "messages": HELLO,
        "max_tokens": 100,
        "tools": [{"name": "get_weather", "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": "get_weather"},
        "extra_body": {"temperature": 0},
    }
    whole = client.messages.create(**asked)
    [use] = whole.content
    assert (whole.stop_reason, use.name) == ("tool_use", "get_weather")
    assert use.input["city"] in CITIES
    with client.messages.stream(**asked) as stream:
        assert stream.get_final_message().content[0].input == use.input
    count = client.messages.count_tokens(model="tiny", messages=HELLO)
    assert count.input_tokens < whole.usage.input_tokens + whole.usage.cache_read_input_tokens
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(**asked | {"model": "gpt-4"})


async def test_an_agent_calls_a_tool_and_then_answers(base):
    asked = []

    @function_tool
    def get_weather(city: Literal["Paris", "Oslo"]) -> str:
        """The weather in a city."""
        asked.append(city)
        return "18 degrees"

    client = openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0)
    agent = Agent(
        name="assistant",
        instructions="Be brief.",
        model=OpenAIResponsesModel("tiny", client),
        tools=[get_weather],
        model_settings=ModelSettings(
            tool_choice="required", parallel_tool_calls=False, max_tokens=100, temperature=0
        ),
    )
    result = await Runner.run(agent, "hello", run_config=RunConfig(tracing_disabled=True))
    assert len(asked) == 1
    assert len(result.raw_responses) == 2
    assert isinstance(result.final_output, str)
