"""An ingress whose chat template shows the model its tools."""

from pathlib import Path

import openai
import pytest
from service_here import ingress_here

from deployments.api.prompt_reader import PromptReader

TEMPLATE = Path(__file__).parents[3] / "configs" / "chatml-tools.jinja"


@pytest.fixture(scope="session")
def tools_reader(base_config, tiny_bundle):
    http = base_config.http.model_copy(update={"chat_template": TEMPLATE})
    methods = [method.name for method in base_config.methods]
    return PromptReader(tiny_bundle, methods, base_config.engine, http)


@pytest.fixture
async def tools_ingress(config, engine, encoder, tools_reader):
    made = await ingress_here(config, engine, encoder, tools_reader)
    async with made.http:
        yield made


@pytest.fixture
def tools_client(tools_ingress):
    http = tools_ingress.http
    return openai.AsyncOpenAI(base_url="http://test/v1", api_key="none", http_client=http)
