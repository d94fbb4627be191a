"""Agent frameworks that call a tool and read its result: the Agents SDK, LangChain, LlamaIndex."""

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
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

City = Literal["Paris", "Oslo"]


def weather(city: City) -> str:
    """The weather in a city."""
    return f"18 degrees in {city}"


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


async def test_llama_index_calls_a_tool(tools_ingress):
    llm = OpenAILike(
        model="tiny",
        api_base="http://test/v1",
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        context_window=512,
        max_tokens=100,
        temperature=0,
        async_http_client=tools_ingress.http,
    )
    made = FunctionTool.from_defaults(weather, name="get_weather")
    answer = await llm.achat_with_tools([made], user_msg="hello", tool_choice="get_weather")
    [call] = llm.get_tool_calls_from_response(answer)
    assert call.tool_name == "get_weather"
    assert call.tool_kwargs["city"] in ("Paris", "Oslo")
