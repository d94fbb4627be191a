"""The OpenAPI document against what is really taken."""

import typing

import pytest
import schemathesis
from anthropic.types import message_count_tokens_params, message_create_params
from hypothesis import HealthCheck, given, settings
from openai.types import embedding_create_params
from openai.types.responses import response_create_params
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from deployments.api.answering import DEADLINE
from deployments.api.embeddings import EmbeddingRequest
from deployments.api.responses_and_messages.messages import CountRequest, MessagesRequest
from deployments.api.responses_and_messages.responses import ResponsesRequest

PAGE = {"/", "/web/{name}", "/openapi.json"}
CHATS = "/v1/chat/completions"
ASKED = (
    *(CHATS, "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
    *("/v1/embeddings", "/tokenize", "/detokenize", "/v1/routing/explain"),
    "/admin/routing/rollback",
)
"""Paths whose requests have a body."""


@pytest.fixture
async def document(ingress):
    response = await ingress.http.get("/openapi.json")
    assert response.status_code == 200
    return response.json()


def test_every_route_is_described_and_nothing_else(ingress, document):
    served = {
        (method.lower(), route.path_format)
        for route in ingress.app.routes
        for method in route.methods - {"HEAD"}
        if route.path_format not in PAGE
    }
    paths = document["paths"]
    assert {(method, path) for path, methods in paths.items() for method in methods} == served
    assert {path for path in paths if "requestBody" in paths[path].get("post", {})} == {*ASKED}


@pytest.mark.parametrize(
    ("body", "parameters"),
    [
        (EmbeddingRequest, embedding_create_params.EmbeddingCreateParams),
        (ResponsesRequest, response_create_params.ResponseCreateParamsStreaming),
        (MessagesRequest, message_create_params.MessageCreateParamsStreaming),
        (CountRequest, message_count_tokens_params.MessageCountTokensParams),
    ],
)
def test_every_parameter_of_the_clients_is_known(body, parameters):
    """Obeyed, without effect, or refused as not supported; never called unknown."""
    known = {*body.model_fields, *body.without_effect, *body.only}
    assert set(typing.get_type_hints(parameters)) <= known


@pytest.fixture
def fuzzed(ingress):
    return schemathesis.openapi.from_asgi("/openapi.json", ingress.app)


def checked(strategy):
    """No 500, nothing invalid accepted. That valid requests
    are accepted is left out: how models are named and their context are not in the schema."""

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=strategy)
    def check(case):
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    check()


def answerable(case):
    """Names a model that is there, and leaves the time to answer: hardly any generated request
    does."""
    if "/v1/models/" not in case.path and isinstance(case.body, dict):
        embeds = case.path == "/v1/embeddings"
        most = "max_output_tokens" if case.path == "/v1/responses" else "max_tokens"
        case.body |= {"model": "static-minilm"} if embeds else {"model": "tiny", most: 4}
    case.headers.pop(DEADLINE, None)
    return case


@pytest.mark.parametrize("path", ASKED)
def test_schemathesis_finds_no_fault_with_valid_requests(fuzzed, path):
    checked(fuzzed[path]["post"].as_strategy().map(answerable))


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/{name}", "/v1/routing", "/health"])
def test_schemathesis_finds_no_fault_with_what_is_read(fuzzed, path):
    checked(fuzzed[path]["get"].as_strategy())


@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=() if p == CHATS else pytest.mark.slow) for p in ASKED]
)
def test_schemathesis_finds_no_fault_with_invalid_requests(fuzzed, path):
    strategy = fuzzed[path]["post"].as_strategy(generation_mode=GenerationMode.NEGATIVE)
    checked(strategy)
