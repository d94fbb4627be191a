"""Reading and validation of request bodies, with errors that name the parameter."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, get_args

import pydantic_core
from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema
from starlette.requests import Request as HttpRequest

from deployments.errors import ApiError, invalid

# The type of an error about a field that is understood and asks for what is not offered.
UNSUPPORTED = "unsupported"
MAX_FIELDS = 256
"""Of one object. Every unknown field is an error of its own, and two megabytes hold many."""
MAX_CONTAINERS = 32_768
"""Objects and lists of a body. A megabyte of empty ones takes a second to read."""
MAX_VALUES = 262_144
"""Values of a body that follow another one in an object or a list."""


class Input(BaseModel):
    """Be strict about types; a field that is null counts as left out, and 1.0 as 1.

    Unknown fields are errors, unless the validation's context is a set: then they are dropped, and
    their names added to the set.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    without_effect: ClassVar[Collection[str]] = ()
    """Names of fields that are accepted and not read, except where they are fields of the class."""
    only: ClassVar[Mapping[str, Sequence[Any]]] = MappingProxyType({})
    """What other known fields may say, which is that nothing is asked for."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_unset(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, dict):
            return value
        if len(value) > MAX_FIELDS:
            raise PydanticCustomError(
                "too_many_fields",
                "an object here has at most {most} fields, got {got}",
                {"most": MAX_FIELDS, "got": len(value)},
            )
        known = {field.alias or name for name, field in cls.model_fields.items()}
        given = {
            name: _whole(said)
            for name, said in value.items()
            if said is not None and (name in known or name not in cls.without_effect)
        }
        for name in sorted(given.keys() & cls.only.keys() - known):
            _check_only(name, given.pop(name), cls.only[name])
        ignored = info.context
        if isinstance(ignored, set):
            ignored |= given.keys() - known
            return {k: v for k, v in given.items() if k in known}
        return given

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        schema.pop("additionalProperties", None)
        for name, field in schema["properties"].items():
            if name not in schema.get("required", ()):
                schema["properties"][name] = {"anyOf": [field, {"type": "null"}]}
        return schema


class Foreign(Input):
    """An object of a type that is not offered here: the last member of a union with `ByField`.

    It is left out and its type is named as an unknown field is; without a set in the validation's
    context it is an error that lists `kinds`.
    """

    model_config = ConfigDict(extra="ignore")
    kinds: ClassVar[Sequence[str]]
    """The types of the union's others."""

    type: str

    @model_validator(mode="before")
    @classmethod
    def _null_is_unset(cls, value: Any) -> Any:
        return value  # its fields are nobody's

    @field_validator("type")
    @classmethod
    def _named(cls, value: str, info: ValidationInfo) -> str:
        if not isinstance(info.context, set):
            raise PydanticCustomError(
                UNSUPPORTED,
                "{got} is not offered; use one of {kinds}",
                {"got": repr(value[:64]), "kinds": ", ".join(cls.kinds)},
            )
        info.context.add(value)
        return value


@dataclass(frozen=True)
class ByField:
    """Tell the members of a union apart by the words that each one's field may say.

    The last member takes all other objects, a member that is no object all that is none. absent:
    what an object without the field says.
    """

    field: str = "type"
    absent: str = ""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        members = get_args(source)
        objects: list[Any] = [one for one in members if isinstance(one, type)]
        # A tag is no field's name: errors leave tags out of the path and keep fields.
        tags = {
            f":{word}": one
            for one in objects
            for word in get_args(one.model_fields[self.field].annotation)
        }
        plain = next((one for one in members if one not in objects), objects[-1])
        if issubclass(objects[-1], Foreign):
            objects[-1].kinds = [tag.removeprefix(":") for tag in tags]

        def tag(value: Any) -> str:
            if isinstance(value, dict):
                said = value.get(self.field, self.absent)
            elif isinstance(value, BaseModel):
                said = getattr(value, self.field)
            else:
                return ":plain"
            return f":{said}" if isinstance(said, str) and f":{said}" in tags else ":other"

        choices = {**tags, ":plain": plain, ":other": objects[-1]}
        return core_schema.tagged_union_schema(
            {tag: handler.generate_schema(one) for tag, one in choices.items()}, tag
        )


Request = TypeVar("Request", bound=Input)


def parse(
    kind: type[Request],
    body: bytes,
    defaults: Mapping[str, Any] = MappingProxyType({}),
    ignored: set[str] | None = None,
) -> Request:
    """Return the validated request, with `defaults` for fields that the body leaves out.

    ignored: takes the names of unknown fields, which are dropped; without it they are errors.
    Raises ApiError 400 naming the parameter.
    """
    check_structure(body)
    try:
        value = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    return validated(kind, value, defaults, ignored)


def check_structure(*texts: bytes, what: str = "the body") -> None:
    """Raise ApiError for more objects, lists or values than a body may have, before it is read.

    texts: JSON, counted together. what: their name in the error.
    """
    containers, values = _structure(texts)
    if containers > MAX_CONTAINERS or values > MAX_VALUES:
        containers, values = _structure([_without_strings(text) for text in texts])
    for got, most, kind in (
        (containers, MAX_CONTAINERS, "objects and lists"),
        (values, MAX_VALUES, "values in objects and lists"),
    ):
        if got > most:
            raise ApiError(400, f"{what}: at most {most} {kind}, got {got}", code="invalid_value")


def _structure(texts: Sequence[bytes]) -> tuple[int, int]:
    containers = sum(text.count(b"{") + text.count(b"[") for text in texts)
    return containers, sum(text.count(b",") for text in texts)


def _without_strings(body: bytes) -> bytes:
    """Return JSON without its strings. An escaped backslash escapes no quote."""
    return b"".join(body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])


def validated(
    kind: type[Request],
    value: dict[str, Any],
    defaults: Mapping[str, Any] = MappingProxyType({}),
    ignored: set[str] | None = None,
) -> Request:
    """Return the validated request of a decoded body. Arguments and errors as in `parse`."""
    said = {name for name, given in value.items() if given is not None}
    value = value | {n: d for n, d in defaults.items() if n in kind.model_fields and n not in said}
    try:
        return kind.model_validate(value, context=ignored)
    except ValidationError as error:
        raise _named(error, value) from error


def _check_only(name: str, given: Any, allowed: Sequence[Any]) -> None:
    """Raise ApiError for a field that says something else than the values `allowed`."""
    # bool is an int in Python, but `best_of: true` is not 1.
    if any(given == one and isinstance(given, bool) == isinstance(one, bool) for one in allowed):
        return
    values = " or ".join(pydantic_core.to_json(one).decode() for one in allowed)
    why = "not supported; leave it out" + (f" or send {values}" if values else "")
    raise invalid(name, why, "unsupported_parameter")


def _whole(value: Any) -> Any:
    """Return a number that is written as 1.0, or a list of such, as integers."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**63 else value
    if isinstance(value, list) and float in map(type, value):
        return list(map(_whole, value))
    return value


async def read_body(request: HttpRequest, limit: int) -> bytes:
    """Return a request's body of at most `limit` bytes.

    Raises ApiError: 413 as soon as it is known to be too large, 415 if it is compressed.
    """
    coding = request.headers.get("content-encoding", "identity")
    if coding.strip().lower() not in ("", "identity"):
        raise ApiError(
            415,
            f"content-encoding: {coding[:40]!r} is not supported; send the JSON uncompressed",
            param="content-encoding",
            code="unsupported_media_type",
        )
    declared = request.headers.get("content-length", "")
    body = bytearray()
    if not (declared.isdecimal() and (len(declared) > 18 or int(declared) > limit)):
        async for part in request.stream():
            body += part
            if len(body) > limit:
                break
        else:
            return bytes(body)
    raise ApiError(413, f"the body is larger than {limit} bytes", code="body_too_large")


def _named(error: ValidationError, body: Any) -> ApiError:
    errors = error.errors(include_url=False)
    # A union reports every branch; the branch that got furthest says most, and among those one
    # that takes the value's type. What is not offered is said before what is missing for it.
    first = max(
        errors,
        key=lambda e: (
            len(_path(e, body)),
            e["type"] == UNSUPPORTED,
            not e["type"].endswith("_type"),
        ),
    )
    path = _path(first, body)
    param = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
    if first["type"] == "extra_forbidden":
        return invalid(param, "unrecognised request argument", "unknown_parameter")
    if first["type"] == "missing":
        return invalid(param, "missing required parameter", "missing_required_parameter")
    code = "unsupported_parameter" if first["type"] == UNSUPPORTED else "invalid_value"
    return ApiError(400, f"{param or 'the body'}: {first['msg']}", param=param or None, code=code)


def _path(error: ErrorDetails, body: Any) -> list[int | str]:
    """Return where in the body the error is: pydantic's location without the names of union
    branches."""
    path: list[int | str] = []
    for part in error["loc"]:
        is_index = isinstance(body, list) and isinstance(part, int)
        if is_index or (isinstance(body, dict) and part in body):
            body = body[part]
        elif not (error["type"] == "missing" and part == error["loc"][-1]):
            continue
        path.append(part)
    return path
