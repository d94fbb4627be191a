"""The OpenAPI document: the routes that are described, with the models that validate requests."""

from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from deployments.api.answering import DEADLINE, FIRST, LONGEST_MS, NO_LEARNING, TOKEN
from deployments.api.input import Input

Schema = dict[str, Any]
REFERENCE = "#/components/schemas/{model}"
_OBJECTIVE = {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_MS}
OBJECTIVES = {FIRST: _OBJECTIVE, TOKEN: _OBJECTIVE}
ANSWERED = {
    DEADLINE: {"type": "integer", "minimum": 1, "maximum": 86_400_000},
    NO_LEARNING: {"type": "string"},
    **OBJECTIVES,
}
"""Headers of a request that is answered by a method, with their schemas."""


def describe(
    summary: str, asked: type[Input] | None = None, headers: Schema | None = None
) -> Schema:
    """Return a route's `openapi_extra`. asked: the model of its body."""
    described: Schema = {
        "summary": summary,
        "responses": {"default": {"description": "see docs/clients.md"}},
    }
    if headers:
        described["parameters"] = [
            {"name": name, "in": "header", "schema": schema} for name, schema in headers.items()
        ]
    if asked is not None:
        content = {"application/json": {"schema": _schema(asked)}}
        described["requestBody"] = {"required": True, "content": content}
    return described


@cache
def _schema(asked: type[Input]) -> Schema:
    """Return a model's JSON schema. To make it takes milliseconds, and nobody changes it."""
    return asked.model_json_schema(ref_template=REFERENCE)


def described_routes(routes: Iterable[BaseRoute]) -> list[APIRoute]:
    """Return the routes that have a description; pages have none."""
    return [one for one in routes if isinstance(one, APIRoute) and one.openapi_extra]


def document(routes: Iterable[BaseRoute]) -> Schema:
    """Return the OpenAPI 3.1 document of an application's routes."""
    paths: dict[str, Schema] = {}
    models: Schema = {}
    for route in described_routes(routes):
        operation = dict(route.openapi_extra or {})
        if route.param_convertors:
            operation["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in route.param_convertors
            ]
        if "requestBody" in operation:
            schema = dict(operation["requestBody"]["content"]["application/json"]["schema"])
            models |= schema.pop("$defs", {})
            content = {"application/json": {"schema": schema}}
            operation["requestBody"] = {"required": True, "content": content}
        for method in route.methods - {"HEAD"}:
            paths.setdefault(route.path_format, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "SpecAdapt", "version": version("specadapt")},
        "paths": paths,
        "components": {"schemas": models},
    }
