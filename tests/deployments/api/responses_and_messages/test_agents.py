"""The Agents SDK calls a tool and reads its result."""

from typing import Literal

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)

City = Literal["Paris", "Oslo"]


@pytest.fixture
def asked():
    """The cities that the weather was asked for."""
    return []


@pytest.mark.parametrize("model", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
@pytest.mark.parametrize("streams", [False, True])
async def test_the_agents_sdk_calls_a_tool_and_then_answers(
    tools_client, tools_ingress, asked, model, streams
):
    # A random model would not end its answer by itself.
    end = tools_ingress.reader.tokenizers.own.eos_token_id
    ends = {"logit_bias": {str(end): 100}, "min_tokens": 4}
    settings = {"parallel_tool_calls": False, "max_tokens": 100, "temperature": 0}

    @function_tool
    def get_weather(city: City) -> str:
        """The weather in a city."""
        asked.append(city)
        return "18 degrees"

    agent = Agent(
        name="assistant",
        instructions="Be brief.",
        model=model("tiny", tools_client),
        tools=[get_weather],
        model_settings=ModelSettings(tool_choice="required", **settings, extra_body=ends),
    )
    config = RunConfig(tracing_disabled=True)
    if streams:
        result = Runner.run_streamed(agent, "hello", run_config=config)
        kinds = [event.type async for event in result.stream_events()]
        assert "raw_response_event" in kinds
    else:
        result = await Runner.run(agent, "hello", run_config=config)
    [city] = asked
    assert city in ("Paris", "Oslo")
    items = [item.type for item in result.new_items]
    assert items[:2] == ["tool_call_item", "tool_call_output_item"]
    assert len(result.raw_responses) == 2
    assert isinstance(result.final_output, str)
