"""SmolLM2 made to call tools: its own template has none, so it is served with the shipped one."""

import json

import pytest
from asking import posted
from conftest_bundle import DEMO
from served import service_config
from service_here import ingress_here
from weather import CHAT_TOOL, CITIES

from deployments.api.prompt_reader import PromptReader
from workers.bundle import load_bundle
from workers.loader import load_engine

TEMPLATE = DEMO.parents[1] / "configs" / "chatml-tools.jinja"


@pytest.fixture
async def smollm2(tmp_path, encoder):
    bundle = load_bundle(DEMO.parent / "smollm2")
    if not bundle.has("target"):
        pytest.skip("SmolLM2 is not imported here: `specadapt bundle import bundles/smollm2`")
    config = service_config(tmp_path, bundle, ("ngram",), engine={"threads": 1})
    http = config.http.model_copy(update={"chat_template": TEMPLATE})
    engine = load_engine(("ngram",), bundle, config.engine, "replica-1")
    reader = PromptReader(bundle, ("ngram",), config.engine, http)
    made = await ingress_here(config, engine, encoder, reader)
    async with made.http:
        yield made
    engine.close()


@pytest.mark.slow
async def test_it_calls_the_function_that_it_has_to(smollm2):
    question = "What is the weather in Paris?"
    asked = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": question}],
        "tools": [CHAT_TOOL],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tokens": 80,
        "temperature": 0,
    }
    [choice] = (await posted(smollm2, "/v1/chat/completions", asked))["choices"]
    assert choice["finish_reason"] == "tool_calls"
    [call] = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"])["city"] in CITIES
