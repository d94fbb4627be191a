"""Ray Serve's configuration files as Ray reads them, and without what it ignores in silence."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from ray.runtime_env import RuntimeEnv
from ray.serve.schema import ServeDeploySchema

from ops.common.boundary import InputError, describe
from schemas.base import MISREAD, misread


def check_serve_config(document: dict[str, Any], place: str) -> None:
    """Refuse what `serve deploy` would refuse, and fields that it would ignore.

    Raises InputError naming every field that is wrong.
    """
    wrong = list(_taken_wrongly(ServeDeploySchema, document))
    try:
        # Not the parsed document itself: validators of Ray change their input.
        ServeDeploySchema.model_validate(deepcopy(document))
    except ValidationError as error:
        wrong.append(describe(error))
    if not wrong:
        wrong += _wrong_environments(document)
        wrong += _unreachable(document)
    if wrong:
        raise InputError(f"{place}: {'; '.join(wrong)}")


def _unreachable(document: dict[str, Any]) -> Iterator[str]:
    """Yield a proxy_location with which requests find no proxy. k8s/base leaves the head out of the
    service, and on one machine EveryNode is the same as HeadOnly."""
    location = document.get("proxy_location", "EveryNode")
    if location != "EveryNode":
        yield f"proxy_location: {location} leaves workers without a proxy: set EveryNode"


def _taken_wrongly(annotation: Any, value: Any, path: str = "") -> Iterator[str]:
    """Yield what Ray's models ignore, or take for something else: unknown fields, and true or false
    for a number."""
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _taken_wrongly(annotation, entry, f"{path}[{_name(entry, index)}]")
    elif misread(annotation, value):
        yield f"{path}: {MISREAD}"
    elif isinstance(value, dict) and (model := _model(annotation)):
        aliases = {field.alias: name for name, field in model.model_fields.items() if field.alias}
        for key, entry in value.items():
            where = f"{path}.{key}" if path else str(key)
            field = model.model_fields.get(aliases.get(key) or key)
            if field is None:
                yield f"{where}: unknown field"
            else:
                yield from _taken_wrongly(field.annotation, entry, where)


def _model(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a mapping is read as: the first one in a list or a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model, get_args(annotation))), None)


def _name(entry: Any, index: int) -> Any:
    """Return the name of a list's entry for messages, or its index."""
    return entry.get("name", index) if isinstance(entry, dict) else index


def _wrong_environments(document: dict[str, Any]) -> Iterator[str]:
    """Yield errors in runtime environments, which Ray would report only when it starts them."""
    for path, environment in _environments(document):
        if unknown := environment.keys() - RuntimeEnv.known_fields:
            yield f"{path}.{min(map(str, unknown))}: unknown field"
        try:
            RuntimeEnv(**environment)
        except (TypeError, ValueError) as error:
            yield f"{path}: {error}"


def _environments(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _environments(entry, f"{path}[{_name(entry, index)}]")
    elif isinstance(value, dict):
        for key, entry in value.items():
            where = f"{path}.{key}" if path else str(key)
            if key == "runtime_env" and isinstance(entry, dict):
                yield where, entry
            elif key not in ("args", "user_config"):
                yield from _environments(entry, where)
