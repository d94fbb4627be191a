"""The OpenAPI document against what is really answered."""

import json
import typing

import jsonschema
import pytest
import schemathesis
from anthropic.types import message_count_tokens_params, message_create_params
from asking import events
from hypothesis import HealthCheck, given, settings
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from deployments.api.openapi import OPERATIONS
from deployments.request.objectives import DEADLINE

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
TEXT = {"model": "tiny", "prompt": "hello", "max_tokens": 8}
RESPONSE = {"model": "tiny", "input": "hello", "max_output_tokens": 8}
COUNTED = {"model": "tiny", "messages": CHAT["messages"]}
PAGE = {("get", "/"), ("get", "/web/{name}"), ("get", "/openapi.json")}


@pytest.fixture
async def document(ingress):
    response = await ingress.http.get("/openapi.json")
    assert response.status_code == 200
    return response.json()


def validate(document, name, body):
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    jsonschema.validate(body, schema, jsonschema.Draft202012Validator)


def test_every_route_is_described_and_nothing_else(ingress):
    served = {
        (method.lower(), route.path)
        for route in ingress.app.routes
        for method in route.methods - {"HEAD"}
    }
    assert served == OPERATIONS.keys() | PAGE


REAL = [
    ("post", "/v1/chat/completions", CHAT, 200),
    ("post", "/v1/chat/completions", CHAT | {"logprobs": True, "top_logprobs": 2, "n": 2}, 200),
    ("post", "/v1/chat/completions", CHAT | {"model": "gpt-4"}, 404),
    ("post", "/v1/chat/completions", CHAT | {"tools": [{}]}, 400),
    ("post", "/v1/completions", TEXT | {"logprobs": 2}, 200),
    ("post", "/v1/embeddings", {"model": "all-MiniLM-L6-v2", "input": ["a", "b"]}, 200),
    (
        "post",
        "/v1/embeddings",
        {"model": "all-MiniLM-L6-v2", "input": "a", "encoding_format": "base64"},
        200,
    ),
    ("post", "/v1/responses", RESPONSE, 200),
    ("post", "/v1/responses", RESPONSE | {"store": True}, 400),
    ("post", "/v1/messages", CHAT, 200),
    ("post", "/v1/messages", CHAT | {"model": "gpt-4"}, 404),
    ("post", "/v1/messages/count_tokens", COUNTED, 200),
    ("post", "/tokenize", {"prompt": "hello", "return_token_strs": True}, 200),
    ("post", "/detokenize", {"tokens": [5, 6]}, 200),
    ("get", "/v1/models", None, 200),
    ("get", "/v1/models/tiny", None, 200),
    ("get", "/v1/models/gpt-4", None, 404),
    ("get", "/v1/routing", None, 200),
    ("post", "/v1/routing/explain", {"prompt": "hello"}, 200),
    ("get", "/health", None, 200),
]


@pytest.mark.parametrize(("method", "path", "asked", "status"), REAL)
async def test_real_answers_are_as_described(ingress, document, method, path, asked, status):
    response = await ingress.http.request(method, path, json=asked)
    assert response.status_code == status
    template = "/v1/models/{name}" if path.startswith("/v1/models/") else path
    described = document["paths"][template][method]["responses"][str(status)]
    reference = described["content"]["application/json"]["schema"]["$ref"]
    validate(document, reference.rpartition("/")[2], response.json())
    assert set(described.get("headers", {})) <= set(response.headers)


@pytest.mark.parametrize(
    ("path", "asked", "chunk"),
    [
        ("/v1/chat/completions", CHAT | {"logprobs": True}, "ChatCompletionChunk"),
        ("/v1/completions", TEXT | {"logprobs": 1}, "CompletionChunk"),
    ],
)
async def test_real_events_are_as_described(ingress, document, path, asked, chunk):
    options = {"include_usage": True, "include_drafted": True}
    asked |= {"stream": True, "stream_options": options}
    *pieces, done = events(await ingress.http.post(path, json=asked))
    assert done == "[DONE]"
    assert len(pieces) > 2
    for piece in pieces:
        validate(document, chunk, json.loads(piece))


@pytest.mark.parametrize(
    ("path", "asked", "chunk"),
    [("/v1/responses", RESPONSE, "ResponseEvent"), ("/v1/messages", CHAT, "MessageEvent")],
)
async def test_real_named_events_are_as_described(ingress, document, path, asked, chunk):
    response = await ingress.http.post(path, json=asked | {"stream": True})
    pieces = [piece.split("\n") for piece in response.text.split("\n\n") if piece]
    assert len(pieces) > 4
    for name, data in pieces:
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        validate(document, chunk, event)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("ChatRequest", chat_create_params.CompletionCreateParamsStreaming),
        ("CompletionRequest", completion_create_params.CompletionCreateParamsStreaming),
        ("EmbeddingRequest", embedding_create_params.EmbeddingCreateParams),
        ("ResponsesRequest", response_create_params.ResponseCreateParamsStreaming),
        ("MessagesRequest", message_create_params.MessageCreateParamsStreaming),
        ("CountRequest", message_count_tokens_params.MessageCountTokensParams),
    ],
)
def test_every_parameter_of_the_clients_is_known(document, name, parameters):
    """Obeyed, without effect, or refused as not supported; never called unknown."""
    described = document["components"]["schemas"][name]["properties"]
    assert set(typing.get_type_hints(parameters)) <= set(described)


@pytest.fixture
def fuzzed(ingress):
    return schemathesis.openapi.from_asgi("/openapi.json", ingress.app)


def checked(strategy):
    """No 500, no undescribed status, body or header, nothing invalid accepted. That valid requests
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
        case.body |= {"model": "all-MiniLM-L6-v2"} if embeds else {"model": "tiny", most: 4}
    case.headers.pop(DEADLINE, None)
    return case


@pytest.mark.parametrize(("method", "path"), sorted(OPERATIONS))
def test_schemathesis_finds_no_fault_with_valid_requests(fuzzed, method, path):
    checked(fuzzed[path][method].as_strategy().map(answerable))


ASKED = sorted(operation for operation in OPERATIONS if OPERATIONS[operation].asked)
CHATS = ("post", "/v1/chat/completions")


@pytest.mark.parametrize(
    ("method", "path"),
    [pytest.param(*o, marks=() if o == CHATS else pytest.mark.slow) for o in ASKED],
)
def test_schemathesis_finds_no_fault_with_invalid_requests(fuzzed, method, path):
    strategy = fuzzed[path][method].as_strategy(generation_mode=GenerationMode.NEGATIVE)
    checked(strategy)
