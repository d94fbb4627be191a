"""From a request's body to a validated model, or to an error that names the parameter."""

from typing import Any, TypeVar

import pydantic_core
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from deployments.api_error import ApiError


class Input(BaseModel):
    """Strict about names and types; a field that is null counts as left out."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null_is_unset(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: v for k, v in value.items() if v is not None}
        return value


Request = TypeVar("Request", bound=Input)


def parse(kind: type[Request], body: bytes) -> Request:
    """The validated request. Raises ApiError 400 naming the parameter."""
    try:
        value = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise _named(error) from error


def _named(error: ValidationError) -> ApiError:
    # A union reports every branch; the branch that got furthest says most.
    first = max(error.errors(include_url=False), key=lambda e: len(e["loc"]))
    loc = [part for part in first["loc"] if not _is_branch(part)]
    param = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in loc).lstrip(".")
    if first["type"] == "extra_forbidden":
        return ApiError(
            400,
            f"unrecognised request argument: {param}",
            param=param,
            code="unknown_parameter",
        )
    if first["type"] == "missing":
        return ApiError(
            400,
            f"missing required parameter: {param}",
            param=param,
            code="missing_required_parameter",
        )
    return ApiError(400, f"{param}: {first['msg']}", param=param, code="invalid_value")


def _is_branch(part: int | str) -> bool:
    return isinstance(part, str) and (part in ("str", "[key]") or part.startswith("list["))
