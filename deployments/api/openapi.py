"""The OpenAPI document, made from the schemas that requests are validated with."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from deployments.api.answering import NO_LEARNING
from deployments.api.embeddings import EmbeddingRequest
from deployments.api.input import Input
from deployments.api.introspection import Explanation, History, Routing
from deployments.api.request_bodies import (
    ChatRequest,
    CompletionRequest,
    ExplainRequest,
    RollbackRequest,
)
from deployments.api.response_bodies import (
    ChatCompletion,
    ChatCompletionChunk,
    Completion,
    CompletionChunk,
    EmbeddingList,
    ErrorBody,
    Health,
    Model,
    ModelList,
)
from deployments.api.responses_and_messages.bodies import (
    AnthropicErrorBody,
    MessageBody,
    MessageEvent,
    ResponseBody,
    ResponseEvent,
    TokenCount,
)
from deployments.api.responses_and_messages.messages import CountRequest, MessagesRequest
from deployments.api.responses_and_messages.responses import ResponsesRequest
from deployments.api.tokenizing import Detokenized, DetokenizeRequest, TokenizeRequest, Tokens
from deployments.request.objectives import DEADLINE, FIRST, LONGEST_MS, TOKEN
from schemas import AppConfig, Snapshot

Schema = dict[str, Any]
REFERENCE = "#/components/schemas/{model}"
# What any body may be refused with, and what may become of its answer.
KEYED = (401, 403, 429)
READ = (400, 413, 415, 500, 503, *KEYED)
ANSWERED = (404, 504, *READ)
STATUS = {
    400: "a field is wrong or not supported; `param` names it",
    401: "no API key that is accepted here",
    403: "the key is not for this path",
    404: "no such model, or no such snapshot",
    413: "the body is too large",
    415: "the body is compressed",
    429: "every waiting line is full, or a limit of the key or its tenant is reached",
    500: "the service failed, or an answer broke off",
    503: "nothing can answer now",
    504: "the deadline passed",
}


@dataclass(frozen=True)
class Operation:
    """Describe one method of one path.

    chunk: an event of the stream that `stream: true` asks for. ends: how that stream ends. error:
    the body of refusals.
    """

    summary: str
    body: type[BaseModel]
    asked: type[Input] | None = None
    chunk: type[BaseModel] | None = None
    refusals: tuple[int, ...] = ()
    path_parameter: str | None = None
    ends: str = "the last is [DONE], or an ErrorBody where the answer breaks off"
    error: type[BaseModel] = ErrorBody


OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("post", "/v1/chat/completions"): Operation(
        "Answer a conversation",
        ChatCompletion,
        ChatRequest,
        ChatCompletionChunk,
        ANSWERED,
    ),
    ("post", "/v1/completions"): Operation(
        "Continue a text",
        Completion,
        CompletionRequest,
        CompletionChunk,
        ANSWERED,
    ),
    ("post", "/v1/responses"): Operation(
        "Answer as OpenAI's Responses do",
        ResponseBody,
        ResponsesRequest,
        ResponseEvent,
        ANSWERED,
        ends="the last has the whole response",
    ),
    ("post", "/v1/messages"): Operation(
        "Answer as Anthropic's Messages do",
        MessageBody,
        MessagesRequest,
        MessageEvent,
        ANSWERED,
        ends="the last is message_stop, or an error where the answer breaks off",
        error=AnthropicErrorBody,
    ),
    ("post", "/v1/messages/count_tokens"): Operation(
        "Count the tokens of a prompt without answering it",
        TokenCount,
        CountRequest,
        refusals=(404, *READ),
        error=AnthropicErrorBody,
    ),
    ("post", "/v1/embeddings"): Operation(
        "The router's vectors of texts",
        EmbeddingList,
        EmbeddingRequest,
        refusals=(404, *READ),
    ),
    ("post", "/tokenize"): Operation(
        "The tokens of a text or a conversation", Tokens, TokenizeRequest, refusals=(404, *READ)
    ),
    ("post", "/detokenize"): Operation(
        "The text of tokens", Detokenized, DetokenizeRequest, refusals=(404, *READ)
    ),
    ("get", "/v1/models"): Operation("The models a request may name", ModelList, refusals=KEYED),
    ("get", "/v1/models/{name}"): Operation(
        "One model", Model, refusals=(404, *KEYED), path_parameter="name"
    ),
    ("get", "/v1/routing"): Operation("The routing table in force", Routing, refusals=KEYED),
    ("post", "/v1/routing/explain"): Operation(
        "Where a prompt would go, without answering it",
        Explanation,
        ExplainRequest,
        refusals=(404, *READ),
    ),
    ("get", "/admin/config"): Operation("The configuration in force", AppConfig, refusals=KEYED),
    ("get", "/admin/routing/history"): Operation(
        "Earlier states of what was learned", History, refusals=(503, *KEYED)
    ),
    ("post", "/admin/routing/rollback"): Operation(
        "Go back to an earlier state; the present one is kept",
        Snapshot,
        RollbackRequest,
        refusals=(404, *READ),
    ),
    ("post", "/admin/routing/reset"): Operation(
        "Forget what was learned; the present state is kept", History, refusals=(503, *KEYED)
    ),
    ("get", "/health"): Operation("Whether a prompt can be answered", Health, refusals=(503,)),
}


@cache
def document() -> Schema:
    """Return the OpenAPI 3.2 document with every operation and status; 3.2 describes streams by
    item."""
    paths: dict[str, Schema] = {}
    for (method, path), operation in OPERATIONS.items():
        paths.setdefault(path, {})[method] = _operation(operation)
    return {
        "openapi": "3.2.0",
        "info": {"title": "SpecAdapt", "version": version("specadapt")},
        "paths": paths,
        "components": {"schemas": _schemas()},
    }


def _schemas() -> Schema:
    models: set[type[BaseModel]] = set()
    for operation in OPERATIONS.values():
        models |= {operation.body, operation.asked or operation.body, operation.error}
        models |= {operation.chunk or operation.body}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, defined = models_json_schema(
        [(model, "validation") for model in ordered], ref_template=REFERENCE
    )
    return dict(defined["$defs"])


def _operation(operation: Operation) -> Schema:
    described: Schema = {"summary": operation.summary, "responses": _responses(operation)}
    parameters = []
    if operation.path_parameter is not None:
        parameters.append(_parameter(operation.path_parameter, "path", {"type": "string"}))
    if operation.chunk is not None:
        milliseconds = {"type": "integer", "minimum": 1, "maximum": 86_400_000}
        parameters.append(_parameter(DEADLINE, "header", milliseconds))
        parameters.append(_parameter(NO_LEARNING, "header", {"type": "string"}))
    if operation.chunk is not None or operation.asked is ExplainRequest:
        objective = {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_MS}
        parameters += [_parameter(name, "header", objective) for name in (FIRST, TOKEN)]
    if parameters:
        described["parameters"] = parameters
    if operation.asked is not None:
        content = {"application/json": {"schema": _reference(operation.asked)}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _responses(operation: Operation) -> Schema:
    content: Schema = {"application/json": {"schema": _reference(operation.body)}}
    success: Schema = {"description": (operation.body.__doc__ or operation.summary).strip()}
    if operation.chunk is not None:
        events = f"where stream is true: JSON of a {operation.chunk.__name__}; {operation.ends}"
        content["text/event-stream"] = {
            "itemSchema": {
                "type": "object",
                "required": ["data"],
                "properties": {"data": {"type": "string", "description": events}},
            }
        }
        names = ("method", "cluster", "reason")
        success["headers"] = {
            f"x-specadapt-{name}": {"schema": {"type": "string"}, "required": True}
            for name in names
        }
    responses: Schema = {"200": {**success, "content": content}}
    for status in sorted(operation.refusals):
        refused = {"application/json": {"schema": _reference(operation.error)}}
        responses[str(status)] = {"description": STATUS[status], "content": refused}
        if status in (429, 503):
            seconds = {"schema": {"type": "string", "pattern": r"^\d+$"}, "required": True}
            responses[str(status)]["headers"] = {"retry-after": seconds}
        if status == 504:
            never = {"schema": {"type": "string", "const": "false"}, "required": True}
            responses[str(status)]["headers"] = {"x-should-retry": never}
    return responses


def _parameter(name: str, place: str, schema: Schema) -> Schema:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _reference(model: type[BaseModel]) -> Schema:
    return {"$ref": REFERENCE.format(model=model.__name__)}
